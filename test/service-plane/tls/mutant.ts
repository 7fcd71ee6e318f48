import type { Random } from '#test/seed.js';

/** Returns one of the seeds after one to four random changes, which may break the TLS format. */
export function mutant(random: Random, seeds: readonly Uint8Array[]): Uint8Array {
  let bytes: Uint8Array = Uint8Array.from(random.pick(seeds));
  for (let count = random.between(1, 4); count > 0; count--) bytes = changed(random, bytes, seeds);
  return bytes;
}

const EDGES = [0x00, 0x01, 0x03, 0x16, 0x2e, 0x30, 0x7f, 0x80, 0xfe, 0xff];

function changed(random: Random, bytes: Uint8Array, seeds: readonly Uint8Array[]): Uint8Array {
  if (bytes.length === 0) return Uint8Array.of(random.pick(EDGES));
  const at = random.below(bytes.length + 1);
  const count = random.between(1, random.pick([1, 2, 4, 40]));
  switch (random.below(8)) {
    case 0:
    case 1:
      return bytes.with(Math.min(at, bytes.length - 1), random.below(256));
    case 2:
      return concatenated(bytes.subarray(0, at), Uint8Array.of(random.pick(EDGES)), bytes.subarray(at + 1));
    case 3:
      return bytes.slice(0, at);
    case 4:
      return concatenated(bytes.subarray(0, at), bytes.subarray(at + count));
    case 5:
      return concatenated(bytes.subarray(0, at), bytes.subarray(Math.max(0, at - count), at), bytes.subarray(at));
    case 6:
      return concatenated(bytes.subarray(0, at), random.pick(seeds).subarray(random.below(40), 40), bytes.subarray(at));
    default:
      return bumped(bytes, at, random.between(-2, 2));
  }
}

/**
 * Adds `by` to the byte at position `at`. If the byte belongs to a length field, the length becomes wrong by
 * a small amount.
 */
function bumped(bytes: Uint8Array, at: number, by: number): Uint8Array {
  return at < bytes.length ? bytes.with(at, (bytes[at] as number) + by) : bytes;
}

function concatenated(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

const LONGEST_CHUNKS = [1, 20, 200, 200, 400, 400, 1_000, 1_000];

/** Splits the bytes into chunks of random sizes. */
export function anySplit(random: Random, bytes: Uint8Array): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  const longest = random.pick(LONGEST_CHUNKS);
  for (let at = 0; at < bytes.length; ) {
    const end = at + random.between(1, longest);
    chunks.push(bytes.subarray(at, end));
    at = end;
  }
  return chunks;
}
