import { type Command, Option } from 'commander';
import { type Client, createClient } from '#cli/client/client.js';
import { type Output, print, remote } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
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
import { idOf, labelOf, readRevision, readStored, type Stored, type Which } from './policy-records.js';
import { readValidSource, singletonOf } from './policy-source.js';

const DIFFERENT = 3;

type Revisions = { readonly from?: number | undefined; readonly to?: number | undefined };
type DiffOptions = Output & Which & Revisions & { readonly file?: string };

export function addDiffCommand(policy: Command, terminal: Terminal, end: End): void {
  remote(policy.command('diff'))
    .description(
      'show what a file would change in the active policy, or in another one, or what changed between two revisions; exits with 3 if they differ',
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
    .action(async ({ file, from, to, ...options }: DiffOptions) => {
      const client = createClient(options, terminal);
      if (file === undefined) return compareRevisions(client, terminal, end, { from, to, ...options });
      const source = await readValidSource(file, terminal);
      const stored = from === undefined ? await readStored(client, options) : await readRevision(client, options, from);
      // Use the stored mode for an envelope without a mode. Its write would use the flag `--mode`, which this
      // command does not have.
      const storedMode = stored?.form === 'envelope' ? stored.mode : undefined;
      const after = singletonOf(source, storedMode);
      const form = stored?.form ?? 'singleton';
      const value = form === 'singleton' ? (stored?.policy ?? {}) : { mode: stored?.mode, policy: stored?.policy };
      const before = singletonOf({ form, value });
      // Compare modes only between two envelopes: a policy in singleton form has no mode of its own.
      const isBoth = stored?.form === 'envelope' && source.form === 'envelope';
      const modeOf = (mode: unknown) => (isBoth ? { mode } : {});
      const difference = differenceOf(
        { ...modeOf(stored?.mode), ...before },
        { ...modeOf(source.value.mode ?? storedMode), ...after },
      );
      const same = isSame(difference);
      const compared = stored === null ? null : labelOf(stored);
      print(terminal, options.output, { compared_with: compared, same, ...difference }, (shown) => {
        if (same) return `${source.label} has the same content as ${shown.compared_with ?? 'no policy'}\n`;
        return differenceText(shown, styleOf(terminal));
      });
      if (!same) end(DIFFERENT);
    });
}

/**
 * Prints the differences between two revisions: `to`, by default the present one, and `from`, by default the
 * one before `to`.
 */
async function compareRevisions(
  client: Client,
  terminal: Terminal,
  end: End,
  { from, to, ...options }: Output & Which & Revisions,
): Promise<void> {
  if (from === undefined && to === undefined)
    throw new CliError('compare with what? Give --file, --from or --to', { exitCode: 2 });
  const id = await idOf(client, options);
  const after = to === undefined ? await readStored(client, { id }) : await readRevision(client, { id }, to);
  if (after === null) throw new CliError(`there is no policy with the id ${id}`);
  const first = from ?? after.revision - 1;
  if (first === 0) throw new CliError('revision 1 is the first one: there is none before it', { exitCode: 2 });
  const before = await readRevision(client, { id }, first);
  const isBoth = before.form === 'envelope' && after.form === 'envelope';
  const sideOf = ({ form, mode, policy }: Stored) => ({
    ...(isBoth ? { mode } : {}),
    ...singletonOf({ form, value: form === 'singleton' ? policy : { mode, policy } }),
  });
  const difference = differenceOf(sideOf(before), sideOf(after));
  const same = isSame(difference);
  const compared = { compared_with: labelOf(after), from_revision: before.revision, to_revision: after.revision };
  print(terminal, options.output, { ...compared, same, ...difference }, (shown) =>
    same
      ? `revision ${after.revision} of ${labelOf(after)} has the same content as revision ${before.revision}\n`
      : differenceText(shown, styleOf(terminal)),
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
