import { ApiFault, faultOfStatus } from './api-fault.js';

/**
 * An object of the Kubernetes API, of which only the metadata are validated. `version`: its resource version.
 */
type ApiObject = { readonly uid: string; readonly version: number; readonly value: unknown };

/** One page of a list. `next` is the `continue` token of the next page; empty on the last page. */
export type ListPage = { readonly version: number; readonly next: string; readonly objects: readonly ApiObject[] };

export type WatchEvent =
  | { readonly type: 'ADDED' | 'MODIFIED' | 'DELETED'; readonly object: ApiObject }
  | { readonly type: 'BOOKMARK'; readonly version: number };

export function listPageOf(value: unknown): ListPage {
  const { metadata, items } = membersOf(value);
  const { resourceVersion, continue: next = '' } = membersOf(metadata);
  const version = parseVersion(resourceVersion);
  if (version !== undefined && typeof next === 'string' && Array.isArray(items)) {
    const objects = items.map(apiObjectOf);
    if (objects.every((object) => object !== undefined)) return { version, next, objects };
  }
  throw new ApiFault('failed', 'the response is not a list of Kubernetes objects');
}

/**
 * Parses a line of a watch. Throws an `ApiFault` if the line is not a valid event, or if the server reports
 * an error.
 */
export function watchEventOf(line: string): WatchEvent {
  const { type, object: value } = membersOf(jsonOf(line));
  if (type === 'ERROR') {
    const { code, message } = membersOf(value);
    // Changes can be missing after any error of the server. So treat each error like 410: list all objects
    // again.
    throw new ApiFault('expired', faultOfStatus(Number(code), String(message)).message);
  }
  if (type === 'BOOKMARK') {
    const version = parseVersion(membersOf(membersOf(value).metadata).resourceVersion);
    if (version !== undefined) return { type, version };
  }
  const object = apiObjectOf(value);
  if ((type === 'ADDED' || type === 'MODIFIED' || type === 'DELETED') && object !== undefined) return { type, object };
  throw new ApiFault('expired', `the server sent a line that is not a watch event: ${line.slice(0, 60)}`);
}

/**
 * Returns a resource version as a number, because later versions are greater (KEP-5504). Returns undefined if
 * it is not a decimal number below 2^53.
 */
export function parseVersion(value: unknown): number | undefined {
  if (typeof value !== 'string' || !/^[0-9]{1,16}$/.test(value)) return undefined;
  const version = Number(value);
  return Number.isSafeInteger(version) ? version : undefined;
}

function apiObjectOf(value: unknown): ApiObject | undefined {
  const { uid, resourceVersion } = membersOf(membersOf(value).metadata);
  const version = parseVersion(resourceVersion);
  return typeof uid === 'string' && uid !== '' && version !== undefined ? { uid, version, value } : undefined;
}

function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function membersOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
}
