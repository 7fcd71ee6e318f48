import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { MAX_BYTES, readBounded } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { writeDurably } from '#store/disk/durable-file.js';
import { StoreError } from '#store/store-error.js';

/**
 * Encrypts secrets for the store with AES-256-GCM. A copy of the store without the sealing key does not
 * reveal the secrets.
 */
export type Seal = {
  /**
   * Encrypts `secret`. The result is bound to `about`, which is authenticated but not contained in the
   * result. `open` fails with another `about`, so a sealed value cannot be used for another purpose.
   */
  seal(secret: Uint8Array, about: string): Promise<string>;
  /**
   * Decrypts a sealed value. Throws `seal_broken` if the value was sealed with another key or another
   * `about`. Throws `seal_key_missing`, `seal_key_exposed` or `seal_key_invalid` if there is no usable key.
   */
  open(sealed: string, about: string): Promise<Buffer>;
};

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Returns a seal with the key in the file at `path`: 32 random bytes in base64, readable by the owner of the
 * file only. If `isGiven` is true, the operator provides the file. Otherwise the first call of `seal` creates
 * the file.
 */
export function fileSeal(path: string, isGiven: boolean): Seal {
  return sealWith(async (purpose) => {
    const key = await readKey(path);
    if (key !== null) return key;
    if (isGiven || purpose === 'open')
      throw new StoreError('seal_key_missing', `read ${path}: the file does not exist`);
    const made = randomBytes(KEY_BYTES);
    await writeDurably(path, `${made.toString('base64')}\n`);
    return made;
  });
}

/** Returns an object that encrypts and decrypts secrets with the key of 32 bytes that `keyFor` returns. */
export function sealWith(keyFor: (purpose: 'seal' | 'open') => Promise<Buffer>): Seal {
  return {
    async seal(secret, about) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(ALGORITHM, await keyFor('seal'), nonce, { authTagLength: TAG_BYTES });
      cipher.setAAD(Buffer.from(about));
      const hidden = [cipher.update(secret), cipher.final()];
      return Buffer.concat([nonce, cipher.getAuthTag(), ...hidden]).toString('base64');
    },
    async open(sealed, about) {
      const bytes = Buffer.from(sealed, 'base64');
      const key = await keyFor('open');
      try {
        const nonce = bytes.subarray(0, NONCE_BYTES);
        const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
        decipher.setAAD(Buffer.from(about));
        decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
        return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
      } catch (cause) {
        throw new StoreError(
          'seal_broken',
          `decrypt ${about}: the value was encrypted with another key, or was changed`,
          {
            cause,
          },
        );
      }
    },
  };
}

async function readKey(path: string): Promise<Buffer | null> {
  let text: string;
  try {
    const { mode } = await stat(path);
    if ((mode & 0o077) !== 0)
      throw new StoreError('seal_key_exposed', `read ${path}: other users can read this key; run chmod 600 ${path}`);
    text = (await readBounded(path, MAX_BYTES.secret)).toString();
  } catch (cause) {
    if (cause instanceof StoreError) throw cause;
    if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
    throw new StoreError('store_unavailable', `read ${path}: ${reasonOf(cause)}`, { cause });
  }
  const key = Buffer.from(text, 'base64');
  if (key.length !== KEY_BYTES || !/^[A-Za-z0-9+/]{43}=\s*$/.test(text))
    throw new StoreError('seal_key_invalid', `read ${path}: the file does not contain 32 bytes in base64`);
  return key;
}
