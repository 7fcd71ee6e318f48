import { TYPE } from '#dns/wire/dns-numbers.js';

/**
 * Where the data of a record type contains names. The data consists of `prefix` bytes, `strings` character
 * strings, `names` names and `tail` bytes. If `tail` is null, the tail has any number of bytes.
 */
export type Layout = {
  readonly prefix: number;
  readonly strings: number;
  readonly names: number;
  readonly tail: number | null;
  /**
   * Whether the reader decompresses compression pointers in the data (RFC 3597, 4). If false, a compression
   * pointer in the data is a fault.
   */
  readonly pointers: boolean;
  /**
   * Whether the writer compresses names in the data. Only the types of RFC 1035 allow compression (RFC 3597,
   * 4).
   */
  readonly compressed: boolean;
};

const LAYOUTS = new Array<Layout | undefined>(TYPE.lp + 1).fill(undefined);

type Shape = Partial<Pick<Layout, 'prefix' | 'strings' | 'names' | 'tail'>>;

function lay(types: readonly number[], shape: Shape, pointers: boolean, compressed: boolean): void {
  const layout = { prefix: 0, strings: 0, names: 1, tail: 0, ...shape, pointers, compressed };
  for (const type of types) LAYOUTS[type] = layout;
}

lay([TYPE.ns, TYPE.md, TYPE.mf, TYPE.cname, TYPE.mb, TYPE.mg, TYPE.mr, TYPE.ptr], {}, true, true);
lay([TYPE.soa], { names: 2, tail: 20 }, true, true);
lay([TYPE.minfo], { names: 2 }, true, true);
lay([TYPE.mx], { prefix: 2 }, true, true);
lay([TYPE.rp], { names: 2 }, true, false);
lay([TYPE.afsdb, TYPE.rt], { prefix: 2 }, true, false);
lay([TYPE.px], { prefix: 2, names: 2 }, true, false);
lay([TYPE.srv], { prefix: 6 }, true, false);
lay([TYPE.naptr], { prefix: 4, strings: 3 }, true, false);
lay([TYPE.sig], { prefix: 18, tail: null }, true, false);
lay([TYPE.nxt], { tail: null }, true, false);
lay([TYPE.dname], {}, false, false);
lay([TYPE.kx, TYPE.lp], { prefix: 2 }, false, false);
lay([TYPE.rrsig], { prefix: 18, tail: null }, false, false);
lay([TYPE.nsec], { tail: null }, false, false);
lay([TYPE.svcb, TYPE.https], { prefix: 2, tail: null }, false, false);

export function layoutOf(type: number): Layout | undefined {
  return type < LAYOUTS.length ? LAYOUTS[type] : undefined;
}
