import { expect, test } from 'vitest';
import type { SelectorResolution } from '#contracts/kubernetes/membership.js';
import { isSameResolution } from '#policy/model/sources/same-sources.js';

const A = { address: 1, length: 32 };
const B = { address: 2, length: 32 };

function resolution(given: Partial<SelectorResolution> = {}): SelectorResolution {
  return { resolved: new Set(['web', 'db']), podNetworks: [A], networks: new Map([['db', [A]]]), ...given };
}

test('`isSameResolution` treats two resolutions of Kubernetes selectors with equal content as equal', () => {
  const other = resolution({ resolved: new Set(['db', 'web']), networks: new Map([['db', [{ ...A }]]]) });
  expect(isSameResolution(resolution(), other)).toBe(true);
});

test.each([
  ['another resolved selector', { resolved: new Set(['web', 'cache']) }],
  ['fewer resolved selectors', { resolved: new Set(['web']) }],
  ['another pod network', { podNetworks: [B] }],
  ['no pod network', { podNetworks: [] }],
  ['another network of a selector', { networks: new Map([['db', [B]]]) }],
  ['more networks of a selector', { networks: new Map([['db', [A, B]]]) }],
  ['networks of another selector', { networks: new Map([['web', [A]]]) }],
  ['an empty list of networks', { networks: new Map([['web', []]]) }],
] satisfies [string, Partial<SelectorResolution>][])(
  'a resolution of Kubernetes selectors with %s is not equal to the original',
  (_, given) => {
    expect(isSameResolution(resolution(), resolution(given))).toBe(false);
    expect(isSameResolution(resolution(given), resolution())).toBe(false);
  },
);
