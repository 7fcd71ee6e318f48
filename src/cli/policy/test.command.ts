import { writeFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { type Command, Option } from 'commander';
import { type Output, print, printing } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import type { AssertionResult } from '#contracts/analysis/assertion.js';
import { reasonOf } from '#files/system-failure.js';
import { decidedText, explainCommand, flowsText } from './flow-difference.js';
import { placed, readSource, readValidSource, type Source } from './policy-source.js';

const FAILED = 3;
/** The maximum number of regions (sets of flows) that the text shows for an assertion that failed. */
const SHOWN = 3;

type TestOptions = Output & {
  readonly policy: string;
  readonly fallback: 'allow' | 'deny';
  readonly ipv6?: boolean;
  readonly junit?: string;
};

export function addTestCommand(policy: Command, terminal: Terminal, end: End): void {
  printing(policy.command('test'))
    .description('check assertions about flows against a policy file, without a node; exits with 3 if one fails')
    .argument('<file>', 'YAML or JSON with a list of assertions; - reads standard input')
    .requiredOption('--policy <file>', 'the policy file, an envelope or in singleton form')
    .addOption(
      new Option('--fallback <action>', 'the setting policy.fallback of the nodes')
        .choices(['allow', 'deny'])
        .default('deny'),
    )
    .option(
      '--ipv6',
      'check IPv6 flows too, for nodes with dataplane.ipv6: enforce (default: if a policy has IPv6 addresses)',
    )
    .option('--junit <file>', 'write the results as JUnit XML to this file too')
    .action(async (file: string, options: TestOptions) => {
      const source = await readValidSource(options.policy, terminal);
      const assertions = await readSource(file, terminal);
      const former = await formerFiles(assertions, file, terminal);
      const results = await resultsOf(assertions, [source, ...former.sources], former.indexes, options);
      if (options.junit !== undefined) writeReport(options.junit, junitOf(results));
      print(terminal, options.output, { results }, (shown) => resultText(shown.results, styleOf(terminal)));
      if (results.some(isFailed)) end(FAILED);
    });
}

type TestResult = Omit<AssertionResult, 'result'> & { readonly result: AssertionResult['result'] | 'skipped' };

const isFailed = ({ result }: TestResult): boolean => result === 'broken' || result === 'unknown';

/**
 * Returns the policy with which an assertion `opens_nothing_since` compares; undefined for any other value.
 */
function formerOf(assertion: unknown): Readonly<Record<string, unknown>> | undefined {
  const { opens_nothing_since: former } = (assertion ?? {}) as { readonly opens_nothing_since?: unknown };
  return typeof former === 'object' && former !== null ? (former as Readonly<Record<string, unknown>>) : undefined;
}

const listIn = ({ value }: Source): readonly { readonly id?: unknown }[] =>
  Array.isArray(value.assertions) ? (value.assertions as readonly { readonly id?: unknown }[]) : [];

/**
 * Reads the policy files with which assertions compare. A relative path begins in the folder of the
 * assertions file. `indexes`: for each assertion, the index of its policy; 0 is the tested policy.
 */
async function formerFiles(assertions: Source, file: string, terminal: Terminal) {
  const sources: Source[] = [];
  const indexes: Record<string, number> = {};
  const folder = file === '-' ? '.' : dirname(file);
  for (const assertion of listIn(assertions)) {
    const named = formerOf(assertion)?.file;
    if (typeof named !== 'string' || typeof assertion.id !== 'string') continue;
    sources.push(await readValidSource(resolve(folder, named), terminal));
    indexes[assertion.id] = sources.length;
  }
  return { sources, indexes };
}

async function resultsOf(
  assertions: Source,
  policies: readonly Source[],
  former: Readonly<Record<string, number>>,
  { fallback, ipv6 = false }: Pick<TestOptions, 'fallback' | 'ipv6'>,
): Promise<readonly TestResult[]> {
  const { analyseDocument } = await import('#main.js');
  // A policy document (envelope) without a mode is checked as if its mode were `enforce`.
  const texts = policies.map(({ form, value, json }) => ({
    form,
    json: form === 'envelope' && !('mode' in value) ? JSON.stringify({ ...value, mode: 'enforce' }) : json,
  }));
  const question = { kind: 'assertions', document: assertions.value, former, limit: SHOWN } as const;
  const answer = await analyseDocument(texts, question, { fallback, ipv6 });
  if (answer.kind === 'invalid_question')
    throw new CliError(
      [
        `${assertions.label} is not valid`,
        ...answer.problems.map((problem) => placed(assertions, { ...problem, code: 'invalid_value' })),
      ].join('\n'),
    );
  if (answer.kind !== 'assertions')
    throw new Error('check assertions: the analysis returned the answer to another kind of question');
  const ofNode = new Set(listIn(assertions).flatMap((one) => (formerOf(one)?.revision === undefined ? [] : [one.id])));
  return answer.results.map((one) => (ofNode.has(one.id) ? { ...one, result: 'skipped', message: SKIPPED } : one));
}

const SKIPPED =
  'only a node has the revisions of a policy; `opens_nothing_since: {file: FILE}` compares with a policy file';

function resultText(results: readonly TestResult[], style: Style): string {
  const failed = results.filter(isFailed).length;
  const skipped = results.filter(({ result }) => result === 'skipped').length;
  const lines = [
    ...results.flatMap((one) => resultLines(one, style)),
    `${results.length} ${results.length === 1 ? 'assertion' : 'assertions'}, ${failed} failed${skipped === 0 ? '' : `, ${skipped} skipped`}`,
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function resultLines({ id, result, message, regions, regions_omitted: omitted }: TestResult, style: Style): string[] {
  if (result === 'holds') return [`${style.good('ok')}     ${id}`];
  if (result === 'skipped') return [`skipped ${id}: ${message}`];
  return [
    `${style.bad('failed')} ${id}: ${message}`,
    ...regions.flatMap((region) => [
      `  ${flowsText(region)}`,
      `    ${decidedText(region.decider)}   ${style.dim(explainCommand(region.example))}`,
    ]),
    ...(omitted > 0 ? [`  and ${omitted} more regions`] : []),
  ];
}

function writeReport(file: string, xml: string): void {
  try {
    writeFileSync(file, xml);
  } catch (cause) {
    throw new CliError(`${file} cannot be written: ${reasonOf(cause)}`, { cause });
  }
}

/** Returns the results in the XML form of JUnit, which CI systems read. */
function junitOf(results: readonly TestResult[]): string {
  const failed = results.filter(isFailed).length;
  const skipped = results.filter(({ result }) => result === 'skipped').length;
  const cases = results.map(({ id, result, message, regions }) => {
    const name = `    <testcase classname="weir policy" name="${escaped(id)}"`;
    if (result === 'holds') return `${name}/>`;
    if (result === 'skipped') return `${name}>\n      <skipped message="${escaped(message)}"/>\n    </testcase>`;
    const details = regions.map((region) => `${flowsText(region)}\n${explainCommand(region.example)}`).join('\n');
    return `${name}>\n      <failure message="${escaped(message)}">${escaped(details)}</failure>\n    </testcase>`;
  });
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    '<testsuites>',
    `  <testsuite name="weir policy test" tests="${results.length}" failures="${failed}"${skipped === 0 ? '' : ` skipped="${skipped}"`}>`,
    ...cases,
    '  </testsuite>',
    '</testsuites>',
    '',
  ].join('\n');
}

/** Escapes a text for XML. Replaces control characters, which XML does not permit. */
const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these characters must be replaced
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, '?');
