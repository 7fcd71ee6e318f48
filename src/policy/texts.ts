/** Many short texts in one piece, as they go from thread to thread: UTF-8, and where each ends. */
export type Texts = { readonly bytes: Uint8Array; readonly ends: Uint32Array };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function textsOf(list: readonly string[]): Texts {
  const ends = new Uint32Array(list.length);
  let units = 0;
  for (let index = 0; index < list.length; index++) {
    units += (list[index] as string).length;
    ends[index] = units;
  }
  const joined = encoder.encode(list.join(''));
  // Every unit became one byte: that is how nearly all ids are written.
  if (joined.length === units) return { bytes: joined, ends };
  const bytes = new Uint8Array(3 * units);
  let end = 0;
  for (let index = 0; index < list.length; index++) {
    end += encoder.encodeInto(list[index] as string, bytes.subarray(end)).written;
    ends[index] = end;
  }
  return { bytes: bytes.slice(0, end), ends };
}

export function textAt({ bytes, ends }: Texts, index: number): string {
  return decoder.decode(bytes.subarray(startOf(ends, index), ends[index] ?? 0));
}

/** Says of an index whether its text is one of `wanted`, without decoding it. */
export function textFinder({ bytes, ends }: Texts, wanted: readonly string[]): (index: number) => boolean {
  const encoded = wanted.map((text) => encoder.encode(text));
  return (index) => {
    const start = startOf(ends, index);
    const length = (ends[index] ?? 0) - start;
    return encoded.some((text) => text.length === length && text.every((byte, at) => byte === bytes[start + at]));
  };
}

function startOf(ends: Uint32Array, index: number): number {
  return index === 0 ? 0 : (ends[index - 1] ?? 0);
}
