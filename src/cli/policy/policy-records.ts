import { z } from 'zod';
import type { Client } from '#cli/client/client.js';
import { parseReply } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';

export const recordSchema = z.object({
  id: z.string(),
  name: z.string().nullable(),
  form: z.enum(['envelope', 'singleton']),
  mode: z.string(),
  revision: z.number(),
  updated_at: z.string(),
  updated_by: z.string(),
  active: z.boolean(),
});
export type PolicyRecord = z.infer<typeof recordSchema>;
const listSchema = z.object({ items: z.array(recordSchema.loose()) });
const storedSchema = recordSchema.extend({ policy: z.record(z.string(), z.unknown()) });
export type Stored = z.infer<typeof storedSchema>;

/** Selects a stored policy by id or by name. Without both, selects the active policy. */
export type Which = { readonly id?: string; readonly name?: string };

export const etagOf = ({ id, revision }: PolicyRecord): string => `"${id}.${revision}"`;
export const labelOf = ({ id, name }: PolicyRecord): string => name ?? id;

export async function listPolicies(client: Client): Promise<PolicyRecord[]> {
  return parseReply(listSchema, await client.request('/api/v1/policies')).items;
}

/** Returns the record of the policy with this id or name. Throws a `CliError` if there is no such policy. */
export async function findRecord(client: Client, { id, name }: Which): Promise<PolicyRecord> {
  if (id !== undefined && name !== undefined) throw bothGiven();
  const records = await listPolicies(client);
  const wanted = name?.trim().toLowerCase();
  const found = records.find((record) =>
    wanted === undefined ? record.id === id : record.name?.toLowerCase() === wanted,
  );
  if (found !== undefined) return found;
  const fix = records.length === 0 ? 'no policy is stored' : `stored policies: ${records.map(labelOf).join(', ')}`;
  throw new CliError(`there is no policy ${name === undefined ? `with the id ${id ?? ''}` : `named ${name}`}`, { fix });
}

const bothGiven = () => new CliError('give either a name or --id, not both', { exitCode: 2 });

/** Returns null if the active policy is requested but no policy is active. */
export async function readStored(client: Client, which: Which): Promise<Stored | null> {
  const path = pathOf(which) ?? (await pathOfActive(client));
  return path === null ? null : parseReply(storedSchema, await client.request(path));
}

/** Reads a revision of a policy, by default of the active one. A deleted policy must be given by its id. */
export async function readRevision(client: Client, which: Which, revision: number): Promise<Stored> {
  const id = await idOf(client, which);
  const path = `/api/v1/policies/${encodeURIComponent(id)}/history/${revision}`;
  return parseReply(storedSchema, await client.request(path));
}

/** Returns the id of a policy, by default of the active one. Throws a `CliError` if there is none. */
export async function idOf(client: Client, { id, name }: Which): Promise<string> {
  if (name !== undefined) return (await findRecord(client, { name, ...(id === undefined ? {} : { id }) })).id;
  if (id !== undefined) return id;
  const active = (await listPolicies(client)).find((record) => record.active);
  if (active !== undefined) return active.id;
  throw new CliError('no policy is active: name a policy', {
    fix: '`weir policy list` shows the stored policies',
    exitCode: 2,
  });
}

function pathOf({ id, name }: Which): string | undefined {
  if (id !== undefined && name !== undefined) throw bothGiven();
  if (id !== undefined) return `/api/v1/policies/${encodeURIComponent(id)}`;
  return name === undefined ? undefined : `/api/v1/policies/by-name/${encodeURIComponent(name)}`;
}

async function pathOfActive(client: Client): Promise<string | null> {
  const active = (await listPolicies(client)).find((record) => record.active);
  return active === undefined ? null : `/api/v1/policies/${active.id}`;
}

/**
 * Returns a document from which `weir policy apply` restores the policy. An envelope contains its name or id
 * and its mode. The active policy in singleton form (without name and mode) is returned as it is. Any other
 * policy in singleton form gets a wrapper that names the stored policy.
 */
export function documentOf({ id, form, mode, name, active, policy }: Stored): Readonly<Record<string, unknown>> {
  const record = name === null ? { id } : { name };
  if (form === 'envelope') return { mode, ...record, policy };
  return active ? policy : { form, ...record, policy };
}
