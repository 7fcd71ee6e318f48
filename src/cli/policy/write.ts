import { CliError } from '#cli/errors/command-error.js';
import type { Source } from './policy-source.js';

export type Overrides = { readonly name?: string; readonly mode?: string };

/** An HTTP request that writes a policy. */
export type Write = {
  readonly path: string;
  /** Query parameters of the request, as `name=value`. */
  readonly parameters: readonly string[];
  readonly body: string;
  readonly form: 'envelope' | 'singleton';
  /** The JSON pointer of the policy document within the request body. */
  readonly prefix: string;
};

const SINGLETON_PATH = '/api/v1/policy';
const nameIn = (record: Source['record']): string | undefined =>
  record !== null && 'name' in record ? record.name : undefined;
const byId = (id: string) => `/api/v1/policies/${encodeURIComponent(id)}`;
const byName = (name: string) => `/api/v1/policies/by-name/${encodeURIComponent(name)}`;

/**
 * Returns the request that writes a policy document.
 * - An envelope is written to the policy with its name, or with its id if it has no name.
 * - A document in singleton form is written to the active policy, or to the policy with the given name or
 *   id.
 * - With a mode, a document in singleton form is wrapped into an envelope.
 */
export function writeOf(source: Source, { name, mode }: Overrides): Write {
  if (source.form === 'singleton') {
    if (mode !== undefined) return wrapped(source, { name, mode });
    const record = name === undefined ? source.record : { name };
    return record === null ? plain(source) : ofRecord(source, record);
  }
  const { id } = source.value;
  const named = name ?? source.value.name;
  if (named === undefined && typeof id === 'string') return ofUnnamed(source, id, mode);
  if (typeof named !== 'string' || named === '')
    throw wrong(`the envelope in ${source.label} has no name`, 'give --name, or a key `name` in the envelope');
  const isChanged = name !== undefined || mode !== undefined;
  const body = isChanged
    ? JSON.stringify({ ...source.value, name: named, ...(mode === undefined ? {} : { mode }) })
    : source.json;
  return { path: byName(named), parameters: [], body, form: 'envelope', prefix: '' };
}

/**
 * Returns the request for an envelope without a name. The path of the request contains the id in the
 * envelope, which `weir policy get` prints for a policy without a name.
 */
function ofUnnamed({ value }: Source, id: string, mode: string | undefined): Write {
  const { id: _, ...envelope } = value;
  const body = JSON.stringify({ ...envelope, ...(mode === undefined ? {} : { mode }) });
  return { path: byId(id), parameters: [], body, form: 'envelope', prefix: '' };
}

const plain = ({ json }: Source): Write => ({
  path: SINGLETON_PATH,
  parameters: [],
  body: json,
  form: 'singleton',
  prefix: '',
});

/**
 * Returns the request for a document in singleton form (without name and mode) that names a stored policy.
 * The response is in envelope form.
 */
function ofRecord({ json }: Source, record: NonNullable<Source['record']>): Write {
  const path = 'name' in record ? byName(record.name) : byId(record.id);
  return { path, parameters: ['form=singleton'], body: json, form: 'envelope', prefix: '' };
}

function wrapped(
  { label, value, json, record }: Source,
  { name = nameIn(record), mode }: { name: string | undefined; mode: string },
): Write {
  if (name === undefined)
    throw wrong(
      `${label} is in singleton form: --name and --mode together convert it to an envelope`,
      'give --name too, or omit --mode to write the active policy',
    );
  const groups: readonly unknown[] = Array.isArray(value.source_groups) ? value.source_groups : [];
  if (groups.some((group) => typeof group === 'object' && group !== null && 'mode' in group))
    throw wrong(
      `the groups in ${label} have modes; groups in an envelope have no mode`,
      'remove `mode` from the groups, or omit --name and --mode',
    );
  const body = `{"mode":${JSON.stringify(mode)},"name":${JSON.stringify(name)},"policy":${json}}`;
  return { path: byName(name), parameters: [], body, form: 'envelope', prefix: '/policy' };
}

const wrong = (message: string, fix: string) => new CliError(message, { fix, exitCode: 2 });
