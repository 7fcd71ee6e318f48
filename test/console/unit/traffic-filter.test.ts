import { expect, test } from 'vitest';
import {
  LIVE_PARAMETERS,
  passes,
  queryOf,
  readFilter,
  toggled,
  withParameter,
} from '../../../console/src/pages/traffic/filter.js';

test('a filter of the page Traffic has parameters for the node, words that a row must contain, and words that it must not contain', () => {
  const filter = readFilter('Office port:443,80 -dns  hostname:*.example.com state:x -', LIVE_PARAMETERS);
  expect(filter).toEqual({
    parameters: [
      ['port', '443'],
      ['port', '80'],
      ['hostname', '*.example.com'],
    ],
    words: ['office', 'state:x'],
    without: ['dns'],
  });
  expect(queryOf(filter.parameters)).toBe('port=443&port=80&hostname=*.example.com');
});

test('a filter word of the page Traffic matches any part of a row, and a word of digits matches only a whole number', () => {
  const row = 'allow flow 10.80.1.2 10.2.0.2 tcp 8080 office / web';
  const isFound = (text: string) => passes(row, readFilter(text, LIVE_PARAMETERS));
  expect(['off', '8080', '10.2.0', 'office -telnet'].map(isFound)).toEqual([true, true, true, true]);
  expect(['80', '2', 'telnet', '-web'].map(isFound)).toEqual([false, false, false, false]);
});

test('a click on a value adds it to the filter text of the page Traffic, and a second click removes it', () => {
  expect(toggled('-dns', 'group:office')).toBe('-dns group:office');
  expect(toggled('-dns group:office', 'group:office')).toBe('-dns');
  expect(withParameter('office verdict:deny port:23', 'verdict', 'audit')).toBe('office port:23 verdict:audit');
  expect(withParameter('office verdict:deny', 'verdict', '')).toBe('office');
});
