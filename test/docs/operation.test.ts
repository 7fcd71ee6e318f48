import { expect, test } from 'vitest';
import { ERRORS } from '#api/errors/error-table.js';
import { type CommandShape, everyCommand, shapeOf } from '#cli/command-shape.js';
import { commandTree } from '#cli/command-tree.js';
import { processTerminal } from '#cli/output/terminal.js';
import { configSchema } from '#config/schema/config-schema.js';
import { schemaAt } from '#config/schema/schema-tree.js';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { WARNING_CODES } from '#contracts/policy/policy-problem.js';
import { MAPS } from '#dataplane/loader/bpf-object.js';
import { FINDING_TYPES } from '#observe/findings/finding.js';
import { CHECKS, CONDITIONS } from '#statecharts/readiness.js';
import { metricsOfEveryPart } from '#test/observe/every-part.js';
import { fileAt, filesIn } from './files.js';

const PAGES = ['docs/troubleshooting.md', 'docs/threat-model.md', 'docs/sizing.md'];
const troubleshooting = fileAt('docs/troubleshooting.md').text;
const commands = everyCommand(shapeOf(commandTree(processTerminal, () => {})));

/** Words in backticks with an underscore that are no code, check, drop reason, map, metric or warning. */
const OTHER_WORDS = [
  ...['default_action', 'default_policy', 'dst_cidrs', 'dns_hostname', 'dst_ports', 'max_size', 'insecure_bind'],
  ...['no_room_to_learn', 'upstream_untrusted', 'too_many_connections', 'claims_refused'],
];

const named = (text: string): string[] =>
  [...text.matchAll(/`([a-z0-9]+(?:_[a-z0-9]+)+)`/g)].map(([, word = '']) => word);

test.each(PAGES)(
  'each word with an underscore in the page %s is a code, check, drop reason, map, metric or warning of Weir',
  (page) => {
    const known = new Set<string>([
      ...[ERRORS, DROP_REASON, WARNING_CODES].flatMap((table) => Object.keys(table)),
      ...[CHECKS, CONDITIONS, FINDING_TYPES, MAPS, OTHER_WORDS].flat(),
      ...metricsOfEveryPart()
        .families()
        .map(({ name }) => name),
    ]);
    const words = named(fileAt(page).text);
    expect(words.length).toBeGreaterThan(0);
    expect(words.filter((word) => !known.has(word))).toEqual([]);
  },
);

test.each(PAGES)('each key of the configuration that the page %s names exists', (page) => {
  const sections =
    /`((?:node|log|api|dataplane|policy|dns|findings|wiretap|metrics|service_plane|cluster)\.[a-z_.]+)\b/g;
  const keys = [...fileAt(page).text.matchAll(sections)].map(([, key = '']) => key);
  const isAbsent = (key: string): boolean => schemaAt(configSchema, key.split('.')) === undefined;
  expect(keys.length).toBeGreaterThan(0);
  expect(keys.filter((key) => isAbsent(key) && !/\.(md|file|route)$/.test(key))).toEqual([]);
});

test('docs/troubleshooting.md has a section for each readiness check, and no section for another check', () => {
  const [, ready = ''] = /## `\/ready` answers 503\n([\s\S]*?)\n## /.exec(troubleshooting) ?? [];
  expect([...ready.matchAll(/^### `(\w+)`$/gm)].map(([, check]) => check)).toEqual([...CHECKS]);
});

test('each error code and drop reason in the tables of docs/troubleshooting.md exists', () => {
  const table = (title: string): string[] => {
    const [, rows = ''] =
      new RegExp(`^\\| ${title} \\|.*\\n\\|[-|]+\\n((?:\\|.*\\n)+)`, 'm').exec(troubleshooting) ?? [];
    return [...rows.matchAll(/^\| `(\w+)` \|/gm)].map(([, code = '']) => code);
  };
  expect(table('error code').length).toBeGreaterThan(5);
  expect(table('error code').filter((code) => !(code in ERRORS))).toEqual([]);
  expect(table('drop reason').length).toBeGreaterThan(5);
  expect(table('drop reason').filter((reason) => !(reason in DROP_REASON))).toEqual([]);
});

/** Returns the problems of a command line: an unknown command, or a flag that the command does not have. */
function problemsOf(line: string): string[] {
  const words = line.split(/\s+/);
  const [command] = commands
    .filter(({ path }) => `${line} `.startsWith(`${path} `))
    .sort((a: CommandShape, b: CommandShape) => b.path.length - a.path.length);
  if (command === undefined || command.path === 'weir') return [line];
  const below = commands.find(({ path }) => path === `${command.path} ${command.defaultsTo ?? ''}`);
  const flags = [command, below].flatMap((of) => of?.options.flatMap(({ names }) => names) ?? []);
  return words.filter((word) => word.startsWith('-') && !flags.includes(word)).map((flag) => `${line}: ${flag}`);
}

test('each command that the documentation pages name exists, with its flags', () => {
  const others = ['policy', 'cluster', 'kubernetes', 'install', 'boot', 'inspection', 'names'];
  const lines = [...PAGES, ...others.map((name) => `docs/${name}.md`)].flatMap((page) => {
    const { text } = fileAt(page);
    const inline = [...text.matchAll(/`(weir [^`\n]+)`/g)].map(([, line = '']) => line);
    return [...inline, ...[...text.matchAll(/^(weir [^>\n]+)/gm)].map(([, line = '']) => line.trim())];
  });
  expect(lines.length).toBeGreaterThan(30);
  expect(lines.flatMap(problemsOf)).toEqual([]);
  expect(problemsOf('weir flows list --nothing x')).toEqual(['weir flows list --nothing x: --nothing']);
  expect(problemsOf('weir polcy list')).toEqual(['weir polcy list']);
});

test('docs/threat-model.md names each class of docs/bypass-classes.md, and no other class', () => {
  const classes = (text: string, row: RegExp): string[] => [...text.matchAll(row)].map(([, name = '']) => name);
  const listed = classes(fileAt('docs/bypass-classes.md').text, /^\| ([KNTHRF]\d+) \|/gm);
  const [, defences = ''] = /## Defences\n([\s\S]*?)\n## /.exec(fileAt('docs/threat-model.md').text) ?? [];
  expect([...new Set(classes(defences, /\b([KNTHRF]\d+)\b/g))].sort()).toEqual(listed.sort());
});

test('docs/README.md links each page of docs', () => {
  const index = fileAt('docs/README.md').text;
  const pages = filesIn(['docs'], /^[a-z-]+\.md$/).map(({ path }) => path.replace('docs/', ''));
  expect(pages).toContain('sizing.md');
  expect(pages.filter((page) => !index.includes(`](${page})`))).toEqual([]);
  expect(fileAt('README.md').text).toContain('](docs/README.md)');
});
