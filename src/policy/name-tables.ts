import type { HostnamePattern } from './model.js';
import { HASH_OF_END, hashWith, slotOf } from './name-hash.js';
import { NONE } from './program.js';
import { sharedBytes, sharedWords } from './shared-array.js';
import { type Texts, textsOf } from './texts.js';

/** What patterns match a name, read by `NameIndex`. Patterns are numbered as in `Program.names`. */
export type NameTables = {
  /** Per pattern its name in wire form, without the `*.` of a suffix; empty where it has no name. */
  readonly wires: { readonly bytes: Uint8Array; readonly offsets: Uint32Array };
  /** Two words a slot: the hash of a name, and the number of its pattern or `NONE`. */
  readonly exact: Uint32Array;
  readonly suffixes: Uint32Array;
  /** The pattern `*`, or `NONE`. */
  readonly any: number;
  readonly regexes: { readonly numbers: Uint32Array; readonly texts: Texts };
};

export function nameTables(patterns: readonly HostnamePattern[]): NameTables {
  const offsets = offsetsOf(patterns);
  const bytes = sharedBytes(offsets[patterns.length] as number);
  const exact = slotsFor(patterns, 'exact');
  const suffixes = slotsFor(patterns, 'suffix');
  for (let number = 0; number < patterns.length; number++) {
    const { kind, text } = patterns[number] as HostnamePattern;
    if (kind !== 'exact' && kind !== 'suffix') continue;
    const hash = writeWire(text, kind === 'suffix' ? SUFFIX_MARK : 0, bytes, offsets[number + 1] as number);
    put(kind === 'exact' ? exact : suffixes, hash, number);
  }
  return {
    wires: { bytes, offsets },
    exact,
    suffixes,
    any: patterns.findIndex(({ kind }) => kind === 'any') >>> 0,
    regexes: regexesOf(patterns),
  };
}

const SUFFIX_MARK = '*.'.length;
/** The length byte of the first label, and the root's. */
const WIRE_EXTRA = 2;

function offsetsOf(patterns: readonly HostnamePattern[]): Uint32Array {
  const offsets = sharedWords(patterns.length + 1);
  let end = 0;
  for (let number = 0; number < patterns.length; number++) {
    const { kind, text } = patterns[number] as HostnamePattern;
    if (kind === 'exact') end += text.length + WIRE_EXTRA;
    if (kind === 'suffix') end += text.length - SUFFIX_MARK + WIRE_EXTRA;
    offsets[number + 1] = end;
  }
  return offsets;
}

/** Writes the name that `text` has from `from` on, so that it ends at `end`, and answers its hash. */
function writeWire(text: string, from: number, bytes: Uint8Array, end: number): number {
  let at = end;
  let hash = HASH_OF_END;
  let length = 0;
  const write = (byte: number): void => {
    bytes[--at] = byte;
    hash = hashWith(hash, byte);
  };
  write(0);
  for (let index = text.length - 1; index >= from; index--) {
    const code = text.charCodeAt(index);
    write(code === DOT ? length : code);
    length = code === DOT ? 0 : length + 1;
  }
  write(length);
  return hash >>> 0;
}

const DOT = 0x2e;

/** Slots that are half full at most. */
function slotsFor(patterns: readonly HostnamePattern[], wanted: HostnamePattern['kind']): Uint32Array {
  let count = 1;
  for (const { kind } of patterns) if (kind === wanted) count++;
  return sharedWords(2 * 2 ** Math.ceil(Math.log2(2 * count))).fill(NONE);
}

function put(slots: Uint32Array, hash: number, number: number): void {
  const count = slots.length / 2;
  let slot = slotOf(hash, count);
  while (slots[2 * slot + 1] !== NONE) slot = (slot + 1) & (count - 1);
  slots[2 * slot] = hash;
  slots[2 * slot + 1] = number;
}

function regexesOf(patterns: readonly HostnamePattern[]): NameTables['regexes'] {
  const numbers: number[] = [];
  for (const [number, { kind }] of patterns.entries()) if (kind === 'regex') numbers.push(number);
  return {
    numbers: Uint32Array.from(numbers),
    texts: textsOf(numbers.map((number) => patterns[number]?.text ?? '')),
  };
}
