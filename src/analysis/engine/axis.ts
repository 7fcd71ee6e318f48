import { itemAt } from '#arrays/read.js';
import { type AddressKey, addressKey } from '#contracts/policy/address-words.js';
import { type AddressSpace, everythingIn, type Point, type Span } from './address-space.js';

/**
 * The addresses of one field, cut at every point where a rule or group begins or ends. The engine uses the
 * indexes of the pieces in place of addresses. All addresses of a piece are treated alike.
 */
export class Axis {
  /** The first address of each piece, ascending. The first piece begins at address 0. */
  readonly #starts: readonly Point[];
  readonly #indexes = new Map<AddressKey, number>();

  constructor(
    private readonly space: AddressSpace,
    spans: Iterable<Span>,
  ) {
    const points = new Map<AddressKey, Point>();
    const add = (point: Point): void => void points.set(addressKey(point), point);
    add(everythingIn(space).start);
    for (const { start, end } of spans) {
      add(start);
      if (end < space.end) add(end);
    }
    this.#starts = [...points.values()].sort((left, right) => (left < right ? -1 : 1));
    for (const [index, start] of this.#starts.entries()) this.#indexes.set(addressKey(start), index);
    this.#indexes.set(addressKey(space.end), this.#starts.length);
  }

  get length(): number {
    return this.#starts.length;
  }

  /**
   * Returns the index of the interval that begins at an address; the number of intervals for the end of the
   * address space.
   */
  indexOf(point: Point): number {
    const index = this.#indexes.get(addressKey(point));
    if (index === undefined)
      throw new RangeError('find an interval of addresses: no interval begins with this address');
    return index;
  }

  /** Returns the addresses of the pieces `from` … `to` - 1. */
  spanOf(from: number, to: number): Span {
    return {
      start: itemAt(this.#starts, from),
      end: to === this.#starts.length ? this.space.end : itemAt(this.#starts, to),
    };
  }
}
