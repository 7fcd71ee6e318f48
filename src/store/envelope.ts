import { createHash, webcrypto } from 'node:crypto';
import { StoreError } from './store-error.js';

/**
 * A sealed value in this file is a value with a checksum; it is not encrypted. Its layout: the byte `W`, the
 * format version, two zero bytes, and the length of the payload (u32, little-endian). Then follow the SHA-256
 * of the payload's SHA-256 and the name, and the payload.
 */
const MAGIC = 0x57;
const FORMAT = 1;
const HEADER = 40;
const OFF_LOOP_BYTES = 256 * 1024;

/**
 * Returns a sealed value: a header with a checksum over `name` and `payload`, and the payload. `name` is the
 * store key. The checksum detects damaged values, and values under a wrong key.
 */
export async function seal(name: string, payload: Uint8Array): Promise<Buffer> {
  const sealed = Buffer.alloc(HEADER + payload.length);
  sealed[0] = MAGIC;
  sealed[1] = FORMAT;
  sealed.writeUInt32LE(payload.length, 4);
  sealed.set(await digest(name, payload), 8);
  sealed.set(payload, HEADER);
  return sealed;
}

/**
 * Returns the payload of a sealed value. Throws `store_damaged` if `seal` did not produce these bytes for
 * this name.
 */
export async function unseal(name: string, sealed: Buffer): Promise<Uint8Array> {
  if (sealed.length < HEADER || sealed[0] !== MAGIC) throw damaged(name, 'it has no valid header');
  if (sealed[1] !== FORMAT) throw damaged(name, `its format is ${sealed[1]}, and this build knows format ${FORMAT}`);
  const payload = sealed.subarray(HEADER);
  if (sealed.readUInt32LE(4) !== payload.length) throw damaged(name, 'its length is wrong');
  const expected = sealed.subarray(8, HEADER);
  if (!expected.equals(await digest(name, payload))) throw damaged(name, 'its checksum is wrong');
  return payload;
}

/**
 * Decodes the first of several sealed values that follow each other in `sealed`. Returns the payload of the
 * first value, and the bytes after this value.
 */
export async function unsealFirst(
  name: string,
  sealed: Uint8Array,
): Promise<{ payload: Uint8Array; rest: Uint8Array }> {
  const bytes = Buffer.from(sealed.buffer, sealed.byteOffset, sealed.byteLength);
  if (bytes.length < HEADER) throw damaged(name, 'it has no valid header');
  const end = HEADER + bytes.readUInt32LE(4);
  return { payload: await unseal(name, bytes.subarray(0, end)), rest: bytes.subarray(end) };
}

async function digest(name: string, payload: Uint8Array): Promise<Buffer> {
  const inner =
    payload.length < OFF_LOOP_BYTES
      ? createHash('sha256').update(payload).digest()
      : Buffer.from(await webcrypto.subtle.digest('SHA-256', payload));
  return createHash('sha256').update(inner).update(name).digest();
}

function damaged(name: string, why: string): StoreError {
  return new StoreError('store_damaged', `read ${name}: ${why}`, { key: name });
}
