import { type Command, InvalidArgumentError, Option } from 'commander';
import { z } from 'zod';
import { createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import {
  LINT_CHECKS,
  type LintCheck,
  type LintEdit,
  type LintFinding,
  type PolicyLint,
} from '#contracts/analysis/policy-lint.js';
import { explainCommand } from './flow-difference.js';
import { idOf } from './policy-records.js';
import { readValidSource, type Source } from './policy-source.js';

const FOUND = 3;
const LIMIT = 50;
const ALL = 1_000;

const lintSchema = z
  .looseObject({ summary: z.string(), findings: z.array(z.looseObject({})) })
  .transform((lint) => lint as unknown as PolicyLint);

type LintOptions = Output & {
  readonly file?: string;
  readonly check?: readonly LintCheck[];
  readonly fallback: 'allow' | 'deny';
  readonly ipv6?: boolean;
  readonly all?: boolean;
};

export function addLintCommand(policy: Command, terminal: Terminal, end: End): void {
  remote(policy.command('lint'))
    .description(
      'find rules that can be removed or merged without any change, and conflicts; a file is checked without a node; exits with 3 if it finds something',
    )
    .argument('[policy-name]', 'a stored policy (default: the active policy)')
    .option('-f, --file <file>', 'check this policy file; - reads standard input')
    .option('--check <lint-check>', 'only this check; may be repeated', checks)
    .addOption(
      new Option('--fallback <action>', 'for a file: the setting policy.fallback of the nodes')
        .choices(['allow', 'deny'])
        .default('deny'),
    )
    .option(
      '--ipv6',
      'for a file: look at IPv6 flows too, for nodes with dataplane.ipv6: enforce (default: if the policy has IPv6 addresses)',
    )
    .option('--all', `show up to ${ALL} findings of each check instead of ${LIMIT}`)
    .action(async (name: string | undefined, options: LintOptions) => {
      const { file, check = LINT_CHECKS, all = false } = options;
      if (file !== undefined && name !== undefined)
        throw new CliError('give a file or the name of a policy, not both', { exitCode: 2 });
      const asked = { checks: check, limit: all ? ALL : LIMIT };
      const answer =
        file === undefined
          ? await ofNode(name, asked, options, terminal)
          : await ofFile(await readValidSource(file, terminal), asked, options);
      print(terminal, options.output, answer, (shown) => lintText(shown, styleOf(terminal)));
      if (answer.findings.length > 0) end(FOUND);
    });
}

type Asked = { readonly checks: readonly LintCheck[]; readonly limit: number };

function checks(value: string, before: readonly LintCheck[] = []): readonly LintCheck[] {
  const check = LINT_CHECKS.find((one) => one === value);
  if (check === undefined) throw new InvalidArgumentError(`It must be one of ${LINT_CHECKS.join(', ')}.`);
  return [...before, check];
}

async function ofNode(
  name: string | undefined,
  asked: Asked,
  options: LintOptions,
  terminal: Terminal,
): Promise<PolicyLint> {
  const client = createClient(options, terminal);
  const policy = name === undefined ? {} : { policy: { id: await idOf(client, { name }) } };
  const reply = await client.request('/api/v1/policy/lint', { method: 'POST', body: { ...asked, ...policy } });
  return parseReply(lintSchema, reply);
}

async function ofFile(
  { form, value, json }: Source,
  asked: Asked,
  { fallback, ipv6 = false }: Pick<LintOptions, 'fallback' | 'ipv6'>,
): Promise<PolicyLint> {
  const { analyseDocument } = await import('#main.js');
  // A policy document (envelope) without a mode is checked as if its mode were `enforce`.
  const text = form === 'envelope' && !('mode' in value) ? JSON.stringify({ ...value, mode: 'enforce' }) : json;
  const answer = await analyseDocument([{ form, json: text }], { kind: 'lint', ...asked }, { fallback, ipv6 });
  if (answer.kind !== 'lint')
    throw new Error('lint a policy: the analysis returned the answer to another kind of question');
  return answer.lint;
}

function lintText({ findings, summary, omitted, left, together }: PolicyLint, style: Style): string {
  const others = LINT_CHECKS.filter((check) => omitted[check] > 0).map((check) => `${omitted[check]} more ${check}`);
  const lines = [
    ...findings.flatMap((finding) => findingLines(finding, style)),
    ...(others.length === 0 ? [] : [`not shown: ${others.join(', ')}`]),
    summary,
    ...left.map(
      ({ check, source_groups: groups, omitted: more }) =>
        `left by ${check}: ${groups.join(', ')}${more > 0 ? ` and ${more} more groups` : ''}`,
    ),
    ...(together.edits > 1 ? [`all ${together.edits} edits that change nothing, together: ${together.summary}`] : []),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function findingLines({ check, message, edit, diff, region }: LintFinding, style: Style): string[] {
  const paint = check === 'conflict' ? style.warn : style.good;
  return [
    `${paint(check)} ${message}`,
    `  ${editText(edit)}${check === 'conflict' ? `: ${diff.summary}` : ''}`,
    ...(region === null ? [] : [`  ${style.dim(explainCommand(region.example))}`]),
  ];
}

function editText(edit: LintEdit): string {
  const { source_group: group } = edit;
  switch (edit.edit) {
    case 'remove_group':
      return `remove the group ${group}`;
    case 'remove_rule':
      return `remove ${group}/${edit.rule}`;
    case 'replace_rule': {
      const match = Object.entries(edit.match).map(([field, values]) => `${field}: ${JSON.stringify(values)}`);
      return `give ${group}/${edit.rule} ${match.join(', ')} and remove ${edit.remove.join(', ')}`;
    }
    case 'move_rule':
      return `if ${group}/${edit.rule} stood before ${edit.before}`;
  }
}
