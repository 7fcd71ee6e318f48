import { createHash } from 'node:crypto';
import type { Prefix } from '#contracts/policy/policy-model.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import type { FindingFilter } from '#observe/findings/finding-filter.js';
import { onlyAddress } from '#observe/findings/network-filter.js';

const LATEST_MS = 2 ** 48 - 1;
const PLACE = /^[0-9a-f]{12}\/[0-9a-f]{32}$/;
const DIGEST_DIGITS = 32;
const PLAIN = /^[\w.:-]{1,64}$/;

export const TIME = 'time/';
export const rowKey = (id: string): string => `finding/${id}`;

/**
 * Returns the place of a finding: its sort key in every index. The newest finding sorts first; findings of
 * the same millisecond sort by id.
 */
export function sortKeyOf(lastMs: number, id: string): string {
  return `${timeKey(lastMs)}/${id}`;
}

export function readSortKey(place: string): { readonly lastMs: number; readonly id: string } {
  return { lastMs: LATEST_MS - Number.parseInt(place.slice(0, 12), 16), id: place.slice(13) };
}

/** Encodes a time from 0 to 2^48 - 1 milliseconds as text, so that later times sort first. */
export function timeKey(ms: number): string {
  return (LATEST_MS - Math.min(LATEST_MS, Math.max(0, Math.trunc(ms)))).toString(16).padStart(12, '0');
}

/** Encodes a place (the sort key of a finding) as the cursor that API clients receive. */
export function cursorOf(place: string): string {
  return Buffer.from(place.replace('/', ''), 'hex').toString('base64url');
}

/** Decodes a cursor to a place (the sort key of a finding). Returns null if the cursor is malformed. */
export function readCursor(cursor: string): string | null {
  const digits = Buffer.from(cursor, 'base64url').toString('hex');
  const place = `${digits.slice(0, 12)}/${digits.slice(12)}`;
  return PLACE.test(place) && cursorOf(place) === cursor ? place : null;
}

/**
 * The indexed fields of a finding, from the most to the least selective. `of` returns the value of the field
 * in a finding; `asked` returns the values of the field that a filter accepts.
 */
const FIELDS = {
  src: { of: (finding) => finding.source, asked: ({ sources }) => addresses(sources) },
  dst: { of: (finding) => finding.destination, asked: ({ destinations }) => addresses(destinations) },
  rule: { of: (finding) => finding.rule, asked: ({ rules }) => rules },
  group: { of: (finding) => finding.sourceGroup, asked: ({ sourceGroups }) => sourceGroups },
  policy: { of: (finding) => finding.policyId, asked: ({ policyIds }) => policyIds },
  type: { of: (finding) => finding.type, asked: ({ types }) => types },
} as const satisfies Record<
  string,
  {
    readonly of: (finding: FindingDelta) => string | null;
    readonly asked: (filter: FindingFilter) => readonly string[];
  }
>;
const ENTRIES = Object.entries(FIELDS);

/**
 * Returns the key prefixes of all indexes that contain the finding. An index key consists of this prefix and
 * the finding's sort key (`sortKeyOf`).
 */
export function indexesOf(finding: FindingDelta): string[] {
  const indexes = [TIME];
  for (const [field, { of }] of ENTRIES) {
    const value = of(finding);
    if (value !== null) indexes.push(indexKey(field, value));
  }
  return indexes;
}

/** For each indexed field that the filter uses, returns the index key prefixes of the values that match. */
export function indexesFor(filter: FindingFilter): string[][] {
  return ENTRIES.flatMap(([field, { asked }]) => {
    const values = new Set(asked(filter));
    return values.size === 0 ? [] : [[...values].map((value) => indexKey(field, value))];
  });
}

/**
 * Returns the address of each network that consists of one address. Returns an empty list if any network
 * contains several addresses: the query then cannot use the index, which contains single addresses.
 */
function addresses(networks: readonly Prefix[]): string[] {
  const each = networks.flatMap((network) => onlyAddress(network) ?? []);
  return each.length === networks.length ? each : [];
}

/**
 * Returns the index key prefix of a field value. A long value, or one with unusual characters such as `/`, is
 * replaced by a digest. The value part of the prefix contains no `/` and is followed by `/`, so no prefix is
 * the beginning of another.
 */
function indexKey(field: string, value: string): string {
  const digest = () => createHash('sha256').update(value).digest('hex').slice(0, DIGEST_DIGITS);
  return `by-${field}/${PLAIN.test(value) ? `=${value}` : `#${digest()}`}/`;
}
