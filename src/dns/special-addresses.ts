/** Blocks that are not public (RFC 6890): first address and bits. */
const NOT_PUBLIC: readonly (readonly [first: number, bits: number])[] = [
  [0x0000_0000, 8],
  [0x0a00_0000, 8],
  [0x6440_0000, 10],
  [0x7f00_0000, 8],
  [0xa9fe_0000, 16],
  [0xac10_0000, 12],
  [0xc000_0000, 24],
  [0xc0a8_0000, 16],
  [0xc612_0000, 15],
  [0xe000_0000, 4],
  [0xf000_0000, 4],
];

/** Blocks that no name stands for on another machine: "this" network, loopback, link-local, multicast, reserved. */
const NOBODYS: readonly (readonly [first: number, bits: number])[] = [
  [0x0000_0000, 8],
  [0x7f00_0000, 8],
  [0xa9fe_0000, 16],
  [0xe000_0000, 4],
  [0xf000_0000, 4],
];

/** Whether some addresses with this first octet are not public. */
const SOME_NOT_PUBLIC = Uint8Array.from({ length: 256 }, (_, octet) =>
  NOT_PUBLIC.some(([first, bits]) => isIn([first, Math.min(8, bits)], octet * 2 ** 24)) ? 1 : 0,
);

export function isPublic(address: number): boolean {
  return SOME_NOT_PUBLIC[address >>> 24] === 0 || !NOT_PUBLIC.some((block) => isIn(block, address));
}

export function isNobodys(address: number): boolean {
  return NOBODYS.some((block) => isIn(block, address));
}

function isIn([first, bits]: readonly [number, number], address: number): boolean {
  return (first ^ address) >>> (32 - bits) === 0;
}
