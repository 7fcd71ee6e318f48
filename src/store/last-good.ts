import { readFile } from 'node:fs/promises';
import { writeDurably } from './durable-file.js';
import { seal, unseal } from './envelope.js';
import { decodeJson, encodeJson } from './json-value.js';
import type { PolicyHead, PolicyRow } from './policy-row.js';

const NAME = 'last-good';
const NEWLINE = 0x0a;

/** The second copy of what is in force: the head, and the active policy with its compressed body. */
export type LastGood = {
  readonly head: PolicyHead;
  readonly active: { readonly row: PolicyRow; readonly compressed: Uint8Array } | null;
};

export type LastGoodFile = {
  /** Null where there is none, or where what is there is damaged. */
  read(): Promise<LastGood | null>;
  write(copy: LastGood): Promise<void>;
};

/** A sealed file: one line of JSON, then the compressed body. */
export function lastGoodFile(path: string): LastGoodFile {
  return {
    async read() {
      let payload: Uint8Array;
      try {
        payload = await unseal(NAME, await readFile(path));
      } catch {
        return null;
      }
      const end = payload.indexOf(NEWLINE);
      const { head, row } = decodeJson<{ head: PolicyHead; row: PolicyRow | null }>(payload.subarray(0, end));
      return { head, active: row === null ? null : { row, compressed: payload.subarray(end + 1) } };
    },
    async write({ head, active }) {
      const line = encodeJson({ head, row: active?.row ?? null });
      const parts = [line, Uint8Array.of(NEWLINE), active?.compressed ?? new Uint8Array(0)];
      await writeDurably(path, await seal(NAME, Buffer.concat(parts)));
    },
  };
}
