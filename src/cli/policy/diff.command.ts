import { type Command, Option } from 'commander';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import { wholeNumber } from '../number.js';
import {
  differenceOf,
  elementsOf,
  type FieldChange,
  type GroupChange,
  type ItemChange,
  isSame,
  type PolicyDifference,
} from './difference.js';
import { diffSchema, flowDifferenceText } from './flow-difference.js';
import { idOf, labelOf, readRevision, readStored, type Stored, type Which } from './policy-records.js';
import { atLines, readValidSource, singletonOf } from './policy-source.js';

const DIFFERENT = 3;

type Revisions = { readonly from?: number | undefined; readonly to?: number | undefined };
type Shape = { readonly text?: boolean; readonly all?: boolean };
type DiffOptions = Output & Which & Revisions & Shape & { readonly file?: string };

/** The maximum number of regions (sets of flows) that `--all` requests. */
const ALL = 1_000;

export function addDiffCommand(policy: Command, terminal: Terminal, end: End): void {
  remote(policy.command('diff'))
    .description(
      'show which flows a file would open and close, compared with the active policy or another one, or two revisions, and which of them the node has seen; exits with 3 if they differ',
    )
    .option('-f, --file <file>', 'YAML or JSON, an envelope or in singleton form; - reads standard input')
    .option('--id <policy-id>', 'compare with the policy of this id')
    .option('--name <policy-name>', 'compare with the policy of this name')
    .option('--from <revision>', 'compare with this revision of the policy', wholeNumber)
    .addOption(
      new Option('--to <revision>', 'compare this revision, by default with the one before it, instead of a file')
        .argParser(wholeNumber)
        .conflicts('file'),
    )
    .option('--all', 'show every region of flows, every change of DNS lookups, and every seen flow that changes')
    .addOption(new Option('--text', 'compare the texts of the policies instead of their flows').conflicts('all'))
    .action(async ({ file, from, to, ...options }: DiffOptions) => {
      const client = createClient(options, terminal);
      const compared =
        file === undefined
          ? await revisionsOf(client, { from, to, ...options })
          : await withFile(client, terminal, file, { from, ...options });
      if (options.text === true) return compareTexts(compared, terminal, end, options);
      const body = {
        from: compared.before.reference,
        to: compared.after.reference,
        ...(options.all === true ? { limit: ALL } : {}),
      };
      const answer = await client.request('/api/v1/policy/diff', { method: 'POST', body }).catch((error: unknown) => {
        throw compared.placed(error);
      });
      const diff = parseReply(diffSchema, answer);
      print(terminal, options.output, diff, (shown) =>
        flowDifferenceText(shown, styleOf(terminal), { all: options.all === true }),
      );
      if (diff.verdict !== 'equal') end(DIFFERENT);
    });
}

/**
 * One of the two compared policies: how a request refers to it, and its content without name and mode
 * (singleton form).
 */
type Side = {
  readonly reference: object;
  readonly content: Readonly<Record<string, unknown>>;
  readonly label: string;
};
type Compared = {
  readonly before: Side;
  readonly after: Side;
  /** The members that identify this policy in the JSON output. */
  readonly names: Readonly<Record<string, unknown>>;
  /** Adds line numbers of the policy file to an error about the policy. */
  readonly placed: (error: unknown) => unknown;
};

async function withFile(
  client: Client,
  terminal: Terminal,
  file: string,
  { from, ...which }: Which & Revisions,
): Promise<Compared> {
  const source = await readValidSource(file, terminal);
  const stored = from === undefined ? await readStored(client, which) : await readRevision(client, which, from);
  // Use the stored mode for an envelope without a mode. Its write would use the flag `--mode`, which this
  // command does not have.
  const storedMode = stored?.form === 'envelope' ? stored.mode : undefined;
  const after = singletonOf(source, storedMode);
  // Compare modes only between two envelopes (policies with name and mode): a policy in singleton form has no
  // mode of its own.
  const isBoth = stored?.form === 'envelope' && source.form === 'envelope';
  const modeOf = (mode: unknown) => (isBoth ? { mode } : {});
  const label = stored === null ? 'no policy' : labelOf(stored);
  return {
    before: {
      reference:
        stored === null ? { active: true } : { id: stored.id, ...(from === undefined ? {} : { revision: from }) },
      content: { ...modeOf(stored?.mode), ...(stored === null ? {} : contentOf(stored)) },
      label,
    },
    after: {
      reference: { policy: after },
      content: { ...modeOf(source.value.mode ?? storedMode), ...after },
      label: source.label,
    },
    names: { compared_with: stored === null ? null : label },
    placed: (error) =>
      error instanceof RefusedError && error.problems.every(({ pointer }) => pointer.startsWith('/to/policy'))
        ? atLines(error, source, source.form === 'singleton' ? '/to/policy' : '/to')
        : error,
  };
}

/** Returns two revisions: `to`, by default the present one, and `from`, by default the one before `to`. */
async function revisionsOf(client: Client, { from, to, ...which }: Which & Revisions): Promise<Compared> {
  if (from === undefined && to === undefined)
    throw new CliError('give the policy to compare with: --file, --from or --to', { exitCode: 2 });
  const id = await idOf(client, which);
  const after = to === undefined ? await readStored(client, { id }) : await readRevision(client, { id }, to);
  if (after === null) throw new CliError(`there is no policy with the id ${id}`);
  const first = from ?? after.revision - 1;
  if (first === 0) throw new CliError('revision 1 is the first one: there is none before it', { exitCode: 2 });
  const before = await readRevision(client, { id }, first);
  const isBoth = before.form === 'envelope' && after.form === 'envelope';
  const sideOf = (stored: Stored): Side => ({
    reference: { id, revision: stored.revision },
    content: { ...(isBoth ? { mode: stored.mode } : {}), ...contentOf(stored) },
    label: `revision ${stored.revision} of ${labelOf(stored)}`,
  });
  return {
    before: { ...sideOf(before), label: `revision ${before.revision}` },
    after: sideOf(after),
    names: { compared_with: labelOf(after), from_revision: before.revision, to_revision: after.revision },
    placed: (error) => error,
  };
}

const contentOf = ({ form, mode, policy }: Stored) =>
  singletonOf({ form, value: form === 'singleton' ? policy : { mode, policy } });

function compareTexts({ before, after, names }: Compared, terminal: Terminal, end: End, { output }: Output): void {
  const difference = differenceOf(before.content, after.content);
  const same = isSame(difference);
  print(terminal, output, { ...names, same, ...difference }, (shown) =>
    same ? `${after.label} has the same content as ${before.label}\n` : differenceText(shown, styleOf(terminal)),
  );
  if (!same) end(DIFFERENT);
}

export function differenceText({ fields, groups }: PolicyDifference, style: Style): string {
  const lines = [
    ...fields.map((field) => fieldLine(field, style)),
    ...groups.flatMap((group) => groupLines(group, style)),
  ];
  return lines.map((line) => `${line}\n`).join('');
}

function groupLines(group: GroupChange, style: Style): string[] {
  return [
    itemLine('group', group, style),
    ...group.fields.map((field) => `    ${fieldLine(field, style)}`),
    ...group.rules.flatMap((rule) => [
      `  ${itemLine('rule', rule, style)}`,
      ...rule.fields.map((field) => `      ${fieldLine(field, style)}`),
    ]),
  ];
}

function itemLine(kind: string, { id, change, moved }: ItemChange, style: Style): string {
  switch (change) {
    case 'added':
      return style.good(`+ ${kind} ${id}`);
    case 'removed':
      return style.bad(`- ${kind} ${id}`);
    case 'changed':
      return `${style.warn(`~ ${kind} ${id}`)}${moved === null ? '' : ` moved from place ${moved.from} to ${moved.to}`}`;
  }
}

function fieldLine({ field, from, to }: FieldChange, style: Style): string {
  if (!Array.isArray(from) && !Array.isArray(to)) return `${field}: ${shown(from)} → ${shown(to)}`;
  const [old, now] = [elementsOf(from), elementsOf(to)];
  const gone = [...old].filter(([key]) => !now.has(key)).map(([, value]) => style.bad(`-${shown(value)}`));
  const come = [...now].filter(([key]) => !old.has(key)).map(([, value]) => style.good(`+${shown(value)}`));
  return `${field}: ${[...gone, ...come].join(' ')}`;
}

function shown(value: unknown): string {
  if (value === undefined) return '(none)';
  return typeof value === 'string' ? value : JSON.stringify(value);
}
