import { explainCommand } from '#cli/policy/flow-difference.js';
import type { AssertionFailure } from '#contracts/analysis/assertion.js';

/** The maximum number of assertions that the text shows. */
const SHOWN = 10;

/**
 * Returns the text about assertions that refuse a write: for each a line and an example flow. `file`: the
 * policy file that the commands to explain the example flows use.
 */
export function brokenText(failures: readonly AssertionFailure[], file?: string): string {
  const { length } = failures;
  const others = length - SHOWN;
  return [
    `the write was refused because of ${length} ${length === 1 ? 'assertion' : 'assertions'}:`,
    ...failures.slice(0, SHOWN).flatMap((failure) => failureLines(failure, file)),
    ...(others > 0 ? [`  and ${others} more`] : []),
  ].join('\n');
}

/**
 * Returns the lines about one assertion: its first region (set of flows), and a command that explains an
 * example flow.
 */
export function failureLines({ id, message, regions: [region] }: AssertionFailure, file?: string): string[] {
  const draft = file === undefined ? '' : ` -f ${inShell(file)}`;
  return [`  ${id}: ${message}`, ...(region === undefined ? [] : [`    ${explainCommand(region.example)}${draft}`])];
}

export function overrideAdvice(failures: readonly AssertionFailure[]): string {
  const ids = failures.slice(0, SHOWN).map(({ id }) => inShell(id));
  const more = failures.length > SHOWN ? ' and for the others' : '';
  return `change the policy, or give --override ${ids.join(',')}${more}, which the history records`;
}

/** Returns a text as one word of a shell. */
const inShell = (text: string): string => (/^[\w./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
