import { z } from 'zod';
import { failureLines } from '#cli/client/broken-assertions.js';
import type { Client } from '#cli/client/client.js';
import { type Output, parseReply, print } from '#cli/client/remote.js';
import { CliError, type Problem } from '#cli/errors/command-error.js';
import { failingChecks, waitUntilReady } from '#cli/node/node-readiness.js';
import { type Style, styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';
import type { AssertionFailure } from '#contracts/analysis/assertion.js';
import type { PolicyDiff } from '#contracts/analysis/policy-diff.js';
import { duration } from '../number.js';
import { type ClusterOptions, READY } from './cluster-flags.js';
import { diffSchema, flowDifferenceText } from './flow-difference.js';
import { labelOf, type PolicyRecord, recordSchema } from './policy-records.js';

const problemSchema = z.object({ pointer: z.string(), code: z.string(), message: z.string() });
const proofSchema = z.object({ classes: z.number().nullable(), checked: z.number(), complete: z.boolean() }).nullable();
const writtenSchema = recordSchema.extend({ warnings: z.array(problemSchema), proof: proofSchema });
export const drySchema = writtenSchema.extend({
  program_lines: z.number(),
  diff: diffSchema.nullish(),
  // Nodes with an older build omit this member.
  assertions: z.array(z.looseObject({ id: z.string(), effect: z.string() })).default([]),
});

/** The result of writing or activating a policy, as `weir` prints it. */
export type Applied = {
  readonly record: PolicyRecord;
  readonly dry_run: boolean;
  /** The generation (activation number) of the policy in force; null for a dry run. */
  readonly generation: number | null;
  readonly etag: string | null;
  readonly warnings: readonly Problem[];
  /**
   * The proof of the new program. Null if the write activated nothing or no dataplane runs. Also null if the
   * API responds in singleton form (without name and mode), because such a response contains no proof.
   */
  readonly proof: z.infer<typeof proofSchema>;
  /** The flows that the change opens and closes. Only the response to a dry run has it. */
  readonly diff?: PolicyDiff | null;
  /** The assertions that would not hold after the write. Only the response to a dry run has it. */
  readonly assertions?: readonly AssertionFailure[];
};

export type WaitOptions = ClusterOptions & { readonly timeout?: number };
export const DEFAULT_WAIT = '60s';
export const DRY_RUN = 'dry_run=true';

/** Returns the warnings of a response whose body contains no warnings. A header contains their codes. */
export function warningsIn(headers: Headers): Problem[] {
  const codes = headers.get('weir-warnings')?.split(', ') ?? [];
  return codes.map((code) => ({ pointer: '', code, message: MESSAGES[code] ?? 'See docs/errors.md.' }));
}
const MESSAGES: Readonly<Record<string, string>> = {
  unconfirmed: 'The change is reverted, unless `weir policy confirm` confirms it in time.',
  assertion_failed: 'An assertion does not hold for the policy; `weir assertions list` shows them.',
  rolling_out: 'Only some nodes enforce the change at first; `weir policy pending` shows them.',
};

/**
 * Adds double quotes around an entity tag if they are missing, because a shell removes quotes on the command
 * line.
 */
export const quoted = (etag: string): string => (etag === '*' || etag.startsWith('"') ? etag : `"${etag}"`);

export function checkedOf(body: unknown): Applied {
  const { warnings, proof, diff, assertions, ...record } = parseReply(drySchema, body);
  return {
    ...{ record: recordSchema.parse(record), dry_run: true, generation: null, etag: null, warnings, proof },
    diff: diff ?? null,
    assertions: assertions as unknown as readonly AssertionFailure[],
  };
}

export function writtenOf({ headers, body }: { readonly headers: Headers; readonly body: unknown }): Applied {
  const { warnings, proof, ...record } = parseReply(writtenSchema, body);
  return { ...headersOf(headers), record: recordSchema.parse(record), warnings, proof };
}

export function headersOf(headers: Headers): Pick<Applied, 'dry_run' | 'generation' | 'etag'> {
  return { dry_run: false, generation: Number(headers.get('weir-generation')), etag: headers.get('etag') };
}

/**
 * Prints the result of a policy write. In the form `table`, prints each warning as `placed` formats it. In
 * the forms `json` and `yaml`, the printed value contains the warnings.
 */
export function tell(
  terminal: Terminal,
  { output }: Output,
  applied: Applied,
  placed: (warning: Problem) => string,
): void {
  if (output === 'table') warn(terminal, applied.warnings, placed);
  const style = styleOf(terminal);
  print(terminal, output, applied, (shown) => sentence(shown, style));
}

export function warn(
  terminal: Terminal,
  warnings: readonly Problem[],
  placed: (warning: Problem) => string = ({ message }) => message,
): void {
  const style = styleOf(terminal);
  for (const warning of warnings)
    terminal.err(`${style.warn('warning:')} ${visible(placed(warning))} [${warning.code}]\n`);
}

/**
 * If the user gave `--wait` without a value, or `--wait ready`, waits until the node is ready. Throws an
 * error that lists the failed checks if the node is not ready in time.
 */
export async function waitAfter(
  client: Client,
  { dry_run: dry }: Applied,
  { wait, timeout, output }: WaitOptions & Output,
  terminal: Terminal,
): Promise<void> {
  if (wait !== READY || dry) return;
  const readiness = await waitUntilReady(client, timeout ?? duration(DEFAULT_WAIT), terminal.interruption());
  if (!readiness.ready)
    throw new CliError(`the policy was written, but the node is not ready: ${failingChecks(readiness)}`);
  if (output === 'table') terminal.out('the node is ready\n');
}

function sentence(applied: Applied, style: Style): string {
  const { record, dry_run: dry, generation, etag, proof, diff, assertions = [] } = applied;
  const { mode, revision, active } = record;
  const what = `${labelOf(record)} (${mode}), revision ${revision}`;
  const lines = dry
    ? [`${what}: valid; nothing was changed`]
    : [`${what}: ${active ? `in force, generation ${generation ?? 0}` : 'stored, not active'}`, `ETag ${etag ?? '-'}`];
  if (proof !== null) {
    const { classes: found } = proof;
    const classes = found === null ? 'more classes than can be counted' : `${found} class${found === 1 ? '' : 'es'}`;
    lines.push(`proved by ${proof.checked} packets of ${classes}${proof.complete ? '' : ', not of every one'}`);
  }
  const refusing = assertions.filter(({ effect }) => effect === 'refuses');
  const refused =
    refusing.length === 0
      ? []
      : [style.bad('the write would be refused:'), ...refusing.flatMap((one) => failureLines(one))];
  const difference = diff == null ? '' : flowDifferenceText(diff, style);
  return `${lines.join('\n')}\n${difference}${refused.map((line) => `${line}\n`).join('')}`;
}
