import { writeFileSync } from 'node:fs';
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
/** The maximum number of regions that the text shows for an assertion that failed. */
const SHOWN = 3;

type TestOptions = Output & {
  readonly policy: string;
  readonly fallback: 'allow' | 'deny';
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
    .option('--junit <file>', 'write the results as JUnit XML to this file too')
    .action(async (file: string, options: TestOptions) => {
      const source = await readValidSource(options.policy, terminal);
      const assertions = await readSource(file, terminal);
      const results = await resultsOf(assertions, source, options.fallback);
      if (options.junit !== undefined) writeReport(options.junit, junitOf(results));
      print(terminal, options.output, { results }, (shown) => resultText(shown.results, styleOf(terminal)));
      if (results.some(({ result }) => result !== 'fulfilled')) end(FAILED);
    });
}

async function resultsOf(assertions: Source, { form, value, json }: Source, fallback: 'allow' | 'deny') {
  const { analyseDocument } = await import('#main.js');
  // An envelope without a mode is checked in the mode enforce.
  const text = form === 'envelope' && !('mode' in value) ? JSON.stringify({ ...value, mode: 'enforce' }) : json;
  const question = { kind: 'assertions', document: assertions.value, limit: SHOWN } as const;
  const answer = await analyseDocument({ form, json: text }, question, fallback);
  if (answer.kind === 'invalid_question')
    throw new CliError(
      [
        `${assertions.label} is not valid`,
        ...answer.problems.map((problem) => placed(assertions, { ...problem, code: 'invalid_value' })),
      ].join('\n'),
    );
  if (answer.kind !== 'assertions') throw new Error('check assertions: the answer is of another kind');
  return answer.results;
}

function resultText(results: readonly AssertionResult[], style: Style): string {
  const failed = results.filter(({ result }) => result !== 'fulfilled').length;
  const lines = [
    ...results.flatMap((one) => resultLines(one, style)),
    `${results.length} ${results.length === 1 ? 'assertion' : 'assertions'}, ${failed} failed`,
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function resultLines(
  { id, result, message, regions, regions_omitted: omitted }: AssertionResult,
  style: Style,
): string[] {
  if (result === 'fulfilled') return [`${style.good('ok')}     ${id}`];
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
function junitOf(results: readonly AssertionResult[]): string {
  const failed = results.filter(({ result }) => result !== 'fulfilled').length;
  const cases = results.map(({ id, result, message, regions }) => {
    const name = `    <testcase classname="weir policy" name="${escaped(id)}"`;
    if (result === 'fulfilled') return `${name}/>`;
    const details = regions.map((region) => `${flowsText(region)}\n${explainCommand(region.example)}`).join('\n');
    return `${name}>\n      <failure message="${escaped(message)}">${escaped(details)}</failure>\n    </testcase>`;
  });
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    '<testsuites>',
    `  <testsuite name="weir policy test" tests="${results.length}" failures="${failed}">`,
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
