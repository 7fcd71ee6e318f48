import { itemAt, u32At } from './read.js';

import { sharedBytes, sharedWords } from './shared-array.js';

/**
 * Many short texts in one UTF-8 byte array, because one array is cheaper to send to another thread than many
 * strings. `ends` contains the byte offset of the end of each text.
 */
export type Texts = { readonly bytes: Uint8Array; readonly ends: Uint32Array };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function textsOf(list: readonly string[]): Texts {
  const ends = sharedWords(list.length);
  let units = 0;
  for (let index = 0; index < list.length; index++) {
    units += itemAt(list, index).length;
    ends[index] = units;
  }
  const joined = encoder.encode(list.join(''));
  // `ends` counts UTF-16 code units. If their number equals the number of bytes, all texts are ASCII, and
  // `ends` also contains the byte offsets.
  if (joined.length === units) return { bytes: shared(joined), ends };
  const bytes = new Uint8Array(3 * units);
  let end = 0;
  for (let index = 0; index < list.length; index++) {
    end += encoder.encodeInto(itemAt(list, index), bytes.subarray(end)).written;
    ends[index] = end;
  }
  return { bytes: shared(bytes.subarray(0, end)), ends };
}

/** A range of the texts in a `Texts`: from index `from` up to index `to`, which is excluded. */
export type TextRun = { readonly texts: Texts; readonly from: number; readonly to: number };

/** Copies several ranges of texts, in order, into one `Texts`. */
export function concatenatedTexts(runs: readonly TextRun[]): Texts {
  const bytesOf = ({ texts: { ends }, from, to }: TextRun) => ({ first: startOf(ends, from), end: startOf(ends, to) });
  const lengths = runs.map(bytesOf).map(({ first, end }) => end - first);
  const bytes = sharedBytes(lengths.reduce((sum, length) => sum + length, 0));
  const ends = sharedWords(runs.reduce((sum, { from, to }) => sum + to - from, 0));
  let at = 0;
  let byte = 0;
  for (const run of runs) {
    const { first, end } = bytesOf(run);
    bytes.set(run.texts.bytes.subarray(first, end), byte);
    for (let index = run.from; index < run.to; index++) ends[at++] = u32At(run.texts.ends, index) - first + byte;
    byte += end - first;
  }
  return { bytes, ends };
}

export function textAt({ bytes, ends }: Texts, index: number): string {
  return decoder.decode(bytes.subarray(startOf(ends, index), u32At(ends, index)));
}

/**
 * Returns a function that tells whether the text at an index equals one of `wanted`. The function compares
 * bytes, because decoding every text would take more time.
 */
export function textFinder({ bytes, ends }: Texts, wanted: readonly string[]): (index: number) => boolean {
  const encoded = wanted.map((text) => encoder.encode(text));
  return (index) => {
    const start = startOf(ends, index);
    const length = u32At(ends, index) - start;
    return encoded.some((text) => text.length === length && text.every((byte, at) => byte === bytes[start + at]));
  };
}

function startOf(ends: Uint32Array, index: number): number {
  return index === 0 ? 0 : u32At(ends, index - 1);
}

function shared(bytes: Uint8Array): Uint8Array {
  const copy = sharedBytes(bytes.length);
  copy.set(bytes);
  return copy;
}
