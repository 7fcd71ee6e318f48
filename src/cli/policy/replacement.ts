import type { Client } from '#cli/client/client.js';
import { CliError } from '#cli/errors/command-error.js';
import { styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import { etagOf, labelOf, listPolicies, type PolicyRecord } from './policy-records.js';
import type { Source } from './policy-source.js';
import type { Write } from './write.js';

type Consent = {
  readonly file: string;
  readonly name?: string;
  readonly mode?: string;
  readonly replace?: true;
  readonly activate: boolean;
  readonly ifMatch?: string;
  readonly dryRun?: true;
};

/**
 * The name of the policy that a write in singleton form (without name and mode) creates if no policy is
 * active.
 */
const DEFAULT_NAME = 'default';
const FIX =
  'give --replace to continue, or --name to choose the policy to write; `weir policy diff` shows what would change';

/**
 * Asks the user before a document replaces an active policy that the document does not name; a dry run only
 * prints a warning. Throws if the user declines or cannot be asked. Resolves with the ETag that the replaced
 * policy must still have at the write; undefined if any ETag is accepted.
 */
export async function confirmReplacement(
  write: Write,
  source: Source,
  options: Consent,
  client: Client,
  terminal: Terminal,
): Promise<string | undefined> {
  if (options.replace === true || options.name !== undefined || !takesEffect(source, options)) return undefined;
  if (write.form === 'singleton' && options.ifMatch !== undefined) return undefined;
  const active = (await listPolicies(client)).find((record) => record.active);
  const etag = write.form === 'envelope' ? undefined : active === undefined ? '"none"' : etagOf(active);
  if (active === undefined || isMeant(write, source, active)) return etag;
  const does = write.form === 'envelope' ? 'take its place' : 'replace it';
  const fact = `the policy ${labelOf(active)} is active, and ${source.label} would ${does}`;
  if (options.dryRun === true) {
    terminal.err(`${styleOf(terminal).warn('warning:')} ${fact}; without --dry-run this needs --replace\n`);
    return undefined;
  }
  if (terminal.ask === null || options.file === '-') throw new CliError(fact, { fix: FIX });
  const typed = await terminal.ask(`${fact}. Go on? [y/N] `);
  if (!/^y(es)?$/i.test(typed.trim()))
    throw new CliError('you did not answer yes, so nothing was changed', { fix: FIX });
  return etag;
}

function takesEffect({ form, value }: Source, { activate, mode }: Consent): boolean {
  return activate && (form === 'singleton' || (mode ?? value.mode) !== 'disabled');
}

/**
 * Returns whether the document clearly refers to the active policy. A document without a name (singleton
 * form) refers to an active policy that was also written without a name, or that has the name `default`.
 */
function isMeant({ form }: Write, { value, record }: Source, active: PolicyRecord): boolean {
  if (form === 'singleton') return active.form === 'singleton' || same(active.name, DEFAULT_NAME);
  const { name, id }: { readonly name?: unknown; readonly id?: unknown } = record ?? value;
  return same(active.name, name) || (active.name === null && active.id === id);
}

const same = (name: string | null, other: unknown): boolean =>
  name !== null && typeof other === 'string' && name.trim().toLowerCase() === other.trim().toLowerCase();
