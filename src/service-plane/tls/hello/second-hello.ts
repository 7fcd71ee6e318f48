import { Cursor, readExtensions } from '#service-plane/tls/tls-cursor.js';
import { EXTENSION } from '#service-plane/tls/tls-numbers.js';

const VERSION_AND_RANDOM_BYTES = 34;

/** Extensions that may differ between the two ClientHellos, each by its own rule in `mayFollow`. */
const SPECIAL: ReadonlySet<number> = new Set([
  EXTENSION.padding,
  EXTENSION.preSharedKey,
  EXTENSION.earlyData,
  EXTENSION.cookie,
  EXTENSION.keyShare,
  EXTENSION.encryptedClientHello,
]);

type Hello = { readonly fixed: Uint8Array; readonly extensions: Extensions };
type Extensions = ReadonlyMap<number, Uint8Array>;

/**
 * Returns true if a client may send the ClientHello `second` after the ClientHello `first` and the
 * HelloRetryRequest `retry`. The arguments are message bodies. Only the differences that RFC 8446, 4.1.2
 * lists are permitted; the order of extensions must be equal. The encrypted inner ClientHello (RFC 9849) may
 * also differ, but not its presence, which rules match.
 */
export function mayFollow(first: Uint8Array, retry: Uint8Array, second: Uint8Array): boolean {
  const before = splitHello(first);
  const after = splitHello(second);
  const asked = splitRetry(retry);
  if (before === null || after === null || asked === null || !equal(before.fixed, after.fixed)) return false;
  const was = (type: number): Uint8Array | undefined => before.extensions.get(type);
  const is = (type: number): Uint8Array | undefined => after.extensions.get(type);
  const { cookie, earlyData, encryptedClientHello: ech, keyShare } = EXTENSION;
  if (!isPlainlyEqual(before.extensions, after.extensions) || is(earlyData) !== undefined) return false;
  if (!equal(asked.get(cookie) ?? was(cookie), is(cookie))) return false;
  // A client repeats or replaces its ECH extension, but keeps the type in its first byte (RFC 9849, 6.1.5 and
  // 6.2).
  if (is(ech)?.[0] !== was(ech)?.[0]) return false;
  const mayShare = asked.has(keyShare) && was(keyShare) !== undefined && is(keyShare) !== undefined;
  if (!mayShare && !equal(was(keyShare), is(keyShare))) return false;
  return keepsIdentities(was(EXTENSION.preSharedKey), is(EXTENSION.preSharedKey));
}

function isPlainlyEqual(before: Extensions, after: Extensions): boolean {
  const plain = (extensions: Extensions) => [...extensions].filter(([type]) => !SPECIAL.has(type));
  const others = plain(after);
  const own = plain(before);
  return (
    own.length === others.length &&
    own.every(([type, data], index) => others[index]?.[0] === type && equal(data, others[index][1]))
  );
}

/**
 * Returns true if every pre-shared key in `after` is also in `before`, in the same order. The ticket ages and
 * binders may differ, and keys may be missing in `after`.
 */
function keepsIdentities(before: Uint8Array | undefined, after: Uint8Array | undefined): boolean {
  if (after === undefined) return true;
  if (before === undefined) return false;
  const kept = identitiesOf(after);
  const known = identitiesOf(before);
  if (kept === null || known === null) return false;
  let from = 0;
  for (const identity of kept) {
    const at = known.indexOf(identity, from);
    if (at < 0) return false;
    from = at + 1;
  }
  return true;
}

/**
 * Returns the identities of a pre_shared_key extension (RFC 8446, 4.2.11); null if the extension is
 * malformed. Each byte of an identity becomes one character.
 */
function identitiesOf(extension: Uint8Array): readonly string[] | null {
  const offered = new Cursor(extension);
  const list = offered.vector(2);
  offered.vector(2);
  const identities: string[] = [];
  while (list.left > 0) {
    identities.push(Buffer.from(list.vector(2).rest()).toString('latin1'));
    list.skip(4);
  }
  return list.isSpent && offered.isSpent ? identities : null;
}

function splitHello(body: Uint8Array): Hello | null {
  const hello = new Cursor(body);
  hello.skip(VERSION_AND_RANDOM_BYTES);
  hello.vector(1);
  hello.vector(2);
  hello.vector(1);
  const fixed = body.subarray(0, body.length - hello.left);
  const extensions = dataOf(hello);
  return extensions === null ? null : { fixed, extensions };
}

/**
 * Returns the extensions of a HelloRetryRequest; null if the message is malformed. The caller can compare the
 * cookie extension of the server byte for byte with the cookie extension of the client, because both have the
 * same format.
 */
function splitRetry(body: Uint8Array): Extensions | null {
  const retry = new Cursor(body);
  retry.skip(VERSION_AND_RANDOM_BYTES);
  retry.vector(1);
  retry.skip(2 + 1);
  return dataOf(retry);
}

function dataOf(hello: Cursor): Extensions | null {
  const extensions = readExtensions(hello);
  return extensions && new Map([...extensions].map(([type, data]) => [type, data.rest()]));
}

function equal(one: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  return one.length === other.length && one.every((byte, index) => byte === other[index]);
}
