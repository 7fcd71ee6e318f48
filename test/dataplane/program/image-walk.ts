import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import { wordsOf } from '#contracts/policy/address-words.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import { isIcmp } from '#contracts/policy/policy-model.js';
import { DESTINATION_MAP, NONE, portMapKey, SOURCE_PORT_MAP } from '#contracts/policy/program.js';
import { NO_MATCH } from '#contracts/policy/verdict-word.js';
import { NEXT_WORD } from '#dataplane/image/class-tree.js';
import { HEADER, type Image, IPV6_HEADER } from '#dataplane/image/program-image.js';

/**
 * Searches a program image (a compiled policy as cache lines) as `bpf/classify/rules.h` does, and returns the
 * verdict word for `packet`. Adds the index of each cache line that the search reads to `touched`. `names`
 * are the numbers of the hostname patterns that the destination is granted for.
 */
export function walkImage(
  { words }: Image,
  packet: Packet,
  touched: Set<number> = new Set(),
  names: ReadonlySet<number> = new Set(),
): number {
  const line = (index: number): Uint32Array => {
    touched.add(index);
    return words.subarray(index * LINE_WORDS, (index + 1) * LINE_WORDS);
  };
  const search = (ref: number, x: number): number => words[placeOf(line, ref, x)] ?? 0;
  const key = portMapKey(
    packet.protocol,
    isIcmp(packet.protocol) ? packet.icmpType * 256 + packet.icmpCode : packet.destinationPort,
  );
  const leaf = (ref: number): number => {
    if (ref === NONE) return NO_MATCH;
    const found = search(ref, key);
    return found >= SOURCE_PORT_MAP ? search(found - SOURCE_PORT_MAP, packet.sourcePort) : found;
  };
  const { header, source, destination } = pointsOf(words, packet, search);
  const list = line(search(line(header)[HEADER.sources] ?? 0, source));
  const [counted = 0, defaultWord = 0] = list;
  const second = counted < 0x100 ? undefined : words.subarray(list.byteOffset / 4 + LINE_WORDS);
  const nameWord = (tree: number, name: number): number => {
    const found = search(tree, name + 1);
    return leaf(found !== NONE && found >= DESTINATION_MAP ? search(found - DESTINATION_MAP, destination) : found);
  };
  for (let segment = 0; segment < (counted & 0xff); segment++) {
    const tree = list[2 + 2 * segment] ?? NONE;
    const own = tree === NONE ? NO_MATCH : leaf(search(tree, destination));
    let best = Math.min(own, leaf(list[3 + 2 * segment] ?? NONE));
    const hasNames = ((counted >>> 8) & (1 << segment)) !== 0;
    if (hasNames && leaf(second?.[2 * segment + 1] ?? NONE) < best) {
      for (const name of names) best = Math.min(best, nameWord(second?.[2 * segment] ?? NONE, name));
    }
    if (best !== NO_MATCH) return best;
  }
  return defaultWord;
}

/**
 * Returns the index in the image of the value that the tree `ref` has for `x`. `line` returns a cache line of
 * the image.
 */
function placeOf(line: (index: number) => Uint32Array, ref: number, x: number): number {
  const count = (keys: Uint32Array): number => keys.filter((key) => key <= x).length;
  let index = ref >>> 3;
  if ((ref & 7) >= 6) {
    const half = (ref & 1) * 8;
    return index * LINE_WORDS + half + 4 + ((count(line(index).subarray(half, half + 4)) - 1) & 3);
  }
  for (let depth = ref & 7; depth > 0; depth--) {
    const inner = line(index);
    const [first = 0] = inner;
    index = (first >>> 4) + Math.min(count(inner.subarray(1)), first & 15);
  }
  return index * LINE_WORDS + 8 + ((count(line(index).subarray(0, 8)) - 1) & 7);
}

/** Returns the indexes in the image of the values that a search for the class of an IPv6 address reads. */
export function classPlaces({ words }: Image, address: bigint): number[] {
  const line = (index: number): Uint32Array => words.subarray(index * LINE_WORDS, (index + 1) * LINE_WORDS);
  const places: number[] = [];
  let found = NEXT_WORD + (line(words[HEADER.ipv6] ?? 0)[IPV6_HEADER.classes] ?? 0);
  for (const word of wordsOf(address)) {
    if (found < NEXT_WORD) break;
    const place = placeOf(line, found - NEXT_WORD, word);
    places.push(place);
    found = words[place] ?? 0;
  }
  return places;
}

/** Returns the header for the family of the packet, and the keys of its addresses in the trees. */
function pointsOf(
  words: Uint32Array,
  { source, destination }: Packet,
  search: (ref: number, x: number) => number,
): { readonly header: number; readonly source: number; readonly destination: number } {
  if (typeof source === 'number' && typeof destination === 'number') return { header: 0, source, destination };
  const header = words[HEADER.ipv6] ?? NONE;
  const classOf = (address: bigint): number => {
    let found = NEXT_WORD + (words[header * LINE_WORDS + IPV6_HEADER.classes] ?? 0);
    for (const word of wordsOf(address)) if (found >= NEXT_WORD) found = search(found - NEXT_WORD, word);
    return found - 1;
  };
  return { header, source: classOf(BigInt(source)), destination: classOf(BigInt(destination)) };
}
