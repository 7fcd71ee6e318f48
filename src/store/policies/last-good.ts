import { readFile } from 'node:fs/promises';
import type { TextEdit } from '#contracts/policy/policy-record.js';
import { appendDurably, writeDurably } from '#store/disk/durable-file.js';
import { decodeFirstChecksummed, encodeChecksummed } from '#store/records/checksummed-value.js';
import { encodeJson } from '#store/records/json-value.js';
import { LAST_GOOD_LINE, type LastGoodLine } from '#store/records/records.js';
import { edited, inflated } from './bodies.js';
import type { PolicyHead, PolicyRow } from './policy-row.js';

const NAME = 'last-good';
const NEWLINE = 0x0a;
/**
 * When the last-good copy has this many edits, `append` returns false. The policy store then writes the whole
 * copy again.
 */
const MAX_EDITS = 100;
const MAX_EDIT_BYTES = 1024 * 1024;

/**
 * The last-good copy: a second copy of the active policy and of the policy head, which names the active
 * policy. After damage, the policy store repairs the store from this copy.
 */
export type LastGood = {
  readonly head: PolicyHead;
  readonly active: { readonly row: PolicyRow; body(): Promise<Uint8Array> } | null;
};

type LastGoodWrite = {
  readonly head: PolicyHead;
  readonly active: { readonly row: PolicyRow; readonly compressed: Uint8Array } | null;
};

/**
 * An edit that changes the policy in the last-good copy to the active policy. `of` is the hash of the policy
 * text before the edit.
 */
type LastGoodEdit = {
  readonly head: PolicyHead;
  readonly row: PolicyRow;
  readonly of: string;
  readonly edit: TextEdit;
};

export type LastGoodFile = {
  /** Returns null if the last-good copy does not exist or is damaged. */
  read(): Promise<LastGood | null>;
  write(copy: LastGoodWrite): Promise<void>;
  /**
   * Appends an edit to the last-good copy. Returns false if the edit cannot be appended. The caller must then
   * write the whole copy.
   */
  append(edit: LastGoodEdit): Promise<boolean>;
};

type Entry = LastGoodLine & { readonly bytes: Uint8Array };

/**
 * Reads and writes the last-good copy (a second copy of the active policy) in a file of entries, each with a
 * checksum. An entry is a line of JSON, followed by bytes: the compressed policy text in the first entry, and
 * the new text of an edit in each further entry. Reading stops at an entry that a crash left incomplete, and
 * at an entry that does not edit the text of the entry before.
 */
export function lastGoodFile(path: string): LastGoodFile {
  /**
   * The state at the end of the file: the hash of the edited policy text, and the number and size of the
   * edits. Null if the end of the file is unknown; then no edit can be appended.
   */
  let tail: { readonly body: string; readonly edits: number; readonly bytes: number } | null = null;
  return {
    async read() {
      tail = null;
      const entries = await entriesOf(path);
      const last = entries.at(-1);
      if (last === undefined) return null;
      const { head, row } = last;
      return { head, active: row === null ? null : { row, body: () => bodyOf(entries) } };
    },
    async write({ head, active }) {
      tail = null;
      const line: LastGoodLine = { head, row: active?.row ?? null };
      await writeDurably(path, await encodeEntry(line, active?.compressed ?? new Uint8Array(0)));
      tail = active === null ? null : { body: active.row.body_sha256, edits: 0, bytes: 0 };
    },
    async append({ head, row, of, edit: { from, to, text } }) {
      if (tail === null || tail.body !== of || tail.edits >= MAX_EDITS || tail.bytes + text.length > MAX_EDIT_BYTES)
        return false;
      const { edits, bytes } = tail;
      tail = null;
      await appendDurably(path, await encodeEntry({ head, row, edit: { of, from, to } }, text));
      tail = { body: row.body_sha256, edits: edits + 1, bytes: bytes + text.length };
      return true;
    },
  };
}

function encodeEntry(line: LastGoodLine, bytes: Uint8Array): Promise<Buffer> {
  return encodeChecksummed(NAME, Buffer.concat([encodeJson(line), Uint8Array.of(NEWLINE), bytes]));
}

async function entriesOf(path: string): Promise<readonly Entry[]> {
  const entries: Entry[] = [];
  try {
    for (let rest: Uint8Array = await readFile(path); rest.length > 0; ) {
      const first = await decodeFirstChecksummed(NAME, rest);
      const end = first.payload.indexOf(NEWLINE);
      const line = LAST_GOOD_LINE.read(NAME, first.payload.subarray(0, end));
      const before = entries.at(-1);
      if (before !== undefined && (line.edit === undefined || line.edit.of !== before.row?.body_sha256)) break;
      entries.push({ ...line, bytes: first.payload.subarray(end + 1) });
      rest = first.rest;
    }
  } catch {
    // Ignore a damaged end of the file: the entries read before the damage are valid.
  }
  return entries;
}

async function bodyOf([copy, ...edits]: readonly Entry[]): Promise<Uint8Array> {
  let body = await inflated(copy?.bytes ?? new Uint8Array(0));
  for (const { edit, bytes } of edits) if (edit !== undefined) body = edited(body, { ...edit, text: bytes });
  return body;
}
