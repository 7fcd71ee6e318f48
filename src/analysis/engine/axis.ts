import { itemAt } from '#arrays/read.js';
import type { AddressSpace, Point, Span } from './address-space.js';

/**
 * The addresses of one field, cut at every point where a rule or group begins or ends. The engine uses the
 * indexes of the pieces in place of addresses. All addresses of a piece are treated alike.
 */
export class Axis {
  /** The first address of each piece, ascending. The first piece begins at address 0. */
  readonly #starts: readonly Point[];
  readonly #indexes = new Map<Point, number>();

  constructor(
    private readonly space: AddressSpace,
    spans: Iterable<Span>,
  ) {
    const points = new Set<Point>([space.spanOf({ address: 0, length: 0 }).start]);
    for (const { start, end } of spans) {
      points.add(start);
      if (end < space.end) points.add(end);
    }
    this.#starts = [...points].sort((left, right) => (left < right ? -1 : 1));
    for (const [index, start] of this.#starts.entries()) this.#indexes.set(start, index);
    this.#indexes.set(space.end, this.#starts.length);
  }

  get length(): number {
    return this.#starts.length;
  }

  /**
   * Returns the index of the piece that begins at a point; the number of pieces for the end of the space.
   */
  indexOf(point: Point): number {
    const index = this.#indexes.get(point);
    if (index === undefined) throw new RangeError('no piece of the axis begins at this point');
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
