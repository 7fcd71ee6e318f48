import { createHash, webcrypto } from 'node:crypto';
import { StoreError } from '#store/store-error.js';

/**
 * The layout of a checksummed value: the byte `W`, the format version, two zero bytes, and the length of the
 * payload (u32, little-endian). Then follow the checksum, which is the SHA-256 of the payload's SHA-256 and
 * the name, and the payload. The payload is not encrypted.
 */
const MAGIC = 0x57;
const FORMAT = 1;
const HEADER = 40;
const OFF_LOOP_BYTES = 256 * 1024;

/**
 * Returns a header with a checksum over `name` and `payload`, followed by the payload. `name` is the store
 * key. The checksum detects damaged values, and values under a wrong key.
 */
export async function encodeChecksummed(name: string, payload: Uint8Array): Promise<Buffer> {
  const checksummed = Buffer.alloc(HEADER + payload.length);
  checksummed[0] = MAGIC;
  checksummed[1] = FORMAT;
  checksummed.writeUInt32LE(payload.length, 4);
  checksummed.set(await digest(name, payload), 8);
  checksummed.set(payload, HEADER);
  return checksummed;
}

/**
 * Returns the payload of a checksummed value. Throws `store_damaged` if the value is damaged, or was encoded
 * with another name.
 */
export async function decodeChecksummed(name: string, checksummed: Buffer): Promise<Uint8Array> {
  if (checksummed.length < HEADER || checksummed[0] !== MAGIC) throw damaged(name, 'it has no valid header');
  if (checksummed[1] !== FORMAT)
    throw damaged(name, `its format is ${checksummed[1]}, and this build knows format ${FORMAT}`);
  const payload = checksummed.subarray(HEADER);
  if (checksummed.readUInt32LE(4) !== payload.length) throw damaged(name, 'its length is wrong');
  const expected = checksummed.subarray(8, HEADER);
  if (!expected.equals(await digest(name, payload))) throw damaged(name, 'its checksum is wrong');
  return payload;
}

/**
 * Decodes the first of several checksummed values that follow each other in `checksummed`. Returns the
 * payload of the first value, and the bytes after this value.
 */
export async function decodeFirstChecksummed(
  name: string,
  checksummed: Uint8Array,
): Promise<{ payload: Uint8Array; rest: Uint8Array }> {
  const bytes = Buffer.from(checksummed.buffer, checksummed.byteOffset, checksummed.byteLength);
  if (bytes.length < HEADER) throw damaged(name, 'it has no valid header');
  const end = HEADER + bytes.readUInt32LE(4);
  return { payload: await decodeChecksummed(name, bytes.subarray(0, end)), rest: bytes.subarray(end) };
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
