/**
 * DNS record types and question types, with their numbers from the IANA registry "Domain Name System (DNS)
 * Parameters".
 */
export const TYPE = {
  a: 1,
  ns: 2,
  md: 3,
  mf: 4,
  cname: 5,
  soa: 6,
  mb: 7,
  mg: 8,
  mr: 9,
  ptr: 12,
  minfo: 14,
  mx: 15,
  txt: 16,
  rp: 17,
  afsdb: 18,
  rt: 21,
  sig: 24,
  px: 26,
  aaaa: 28,
  nxt: 30,
  srv: 33,
  naptr: 35,
  kx: 36,
  dname: 39,
  opt: 41,
  ds: 43,
  rrsig: 46,
  nsec: 47,
  dnskey: 48,
  svcb: 64,
  https: 65,
  lp: 107,
  tkey: 249,
  tsig: 250,
  ixfr: 251,
  axfr: 252,
  any: 255,
} as const;

export const CLASS = { in: 1, ch: 3 } as const;

export const OPCODE = { query: 0 } as const;

export const RCODE = { noerror: 0, formerr: 1, servfail: 2, nxdomain: 3, notimp: 4, refused: 5, badvers: 16 } as const;

/** Flag bits in the 16 bits that follow the message id. */
export const FLAG = { qr: 0x8000, tc: 0x0200, rd: 0x0100, ra: 0x0080, ad: 0x0020, cd: 0x0010 } as const;

/** EDNS option codes, with their numbers from the IANA registry of DNS parameters. */
export const OPTION = { cookie: 10, padding: 12, extendedError: 15 } as const;

/** Info codes of Extended DNS Errors (RFC 8914). */
export const EXTENDED_ERROR = {
  other: 0,
  staleAnswer: 3,
  notReady: 14,
  blocked: 15,
  filtered: 17,
  prohibited: 18,
  noReachableAuthority: 22,
} as const;

export const HEADER_BYTES = 12;
export const NAME_BYTES = 255;
export const LABEL_BYTES = 63;
export const MESSAGE_BYTES = 65_535;
