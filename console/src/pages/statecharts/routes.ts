import { type Box, type Layout, type Rect, TITLE_HEIGHT } from './layout.js';

export type Point = { readonly x: number; readonly y: number };

/** The distance of the grid lines on which arrows run, in CSS pixels. */
const STEP = 5;
const MARGIN = 10;
const BEND = 10;
/**
 * The additional cost of a grid point on the border of a box, and of a point that has an arrow already. So
 * arrows cross a border, but do not run along it.
 */
const BORDER = 12;
const OVER = 5;
const BLOCKED = 255;
const STEPS = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
] as const;

/**
 * Finds routes for arrows between the boxes of a drawing. An arrow consists of horizontal and vertical lines
 * between the boxes, never crosses a name, and ends at the border of its target.
 */
export class Router {
  readonly #columns: number;
  readonly #rows: number;
  /** The cost of a route through each point of the grid. */
  readonly #cost: Uint8Array;

  constructor({ width, height, boxes }: Layout) {
    this.#columns = Math.ceil((width + 2 * MARGIN) / STEP) + 1;
    this.#rows = Math.ceil((height + 2 * MARGIN) / STEP) + 1;
    this.#cost = new Uint8Array(this.#columns * this.#rows).fill(1);
    for (const box of boxes) this.#draw(box);
  }

  #draw(box: Box): void {
    const isNested = box.state.children.length > 0 && !box.isFolded;
    if (!isNested) {
      this.#fill(box, BLOCKED);
      return;
    }
    const { x, y, width, height } = box;
    for (const border of [
      { x, y, width, height: 1 },
      { x, y: y + height - 1, width, height: 1 },
      { x, y, width: 1, height },
      { x: x + width - 1, y, width: 1, height },
    ])
      this.#fill(border, BORDER);
    // Block the title of the box. Arrows can cross the free space to its right.
    this.#fill({ x, y, width: Math.min(width - 12, titleWidth(box)), height: TITLE_HEIGHT - 3 }, BLOCKED);
  }

  #fill({ x, y, width, height }: Rect, cost: number): void {
    for (let row = Math.ceil((y + MARGIN - 2) / STEP); row <= Math.floor((y + height + MARGIN + 2) / STEP); row++)
      for (
        let column = Math.ceil((x + MARGIN - 2) / STEP);
        column <= Math.floor((x + width + MARGIN + 2) / STEP);
        column++
      ) {
        const at = row * this.#columns + column;
        const before = this.#cost[at];
        if (before !== undefined) this.#cost[at] = Math.max(before, cost);
      }
  }

  /** Returns the corners of the route from one box to another; null if no route exists. */
  route(from: Box, to: Box): readonly Point[] | null {
    const starts = this.#around(from, to);
    const ends = new Map(this.#around(to, from).map(({ at, ...end }) => [at, end]));
    if (starts.length === 0 || ends.size === 0) return null;
    const best = new Float32Array(this.#cost.length * 4).fill(Number.POSITIVE_INFINITY);
    const before = new Int32Array(this.#cost.length * 4).fill(-1);
    const open = new Heap();
    const heuristic = this.#distanceTo(to);
    const offer = (node: number, cost: number, previous: number) => {
      if (cost >= (best[node] ?? 0)) return;
      best[node] = cost;
      before[node] = previous;
      open.push(node, cost + heuristic(node >> 2));
    };
    for (const { at, direction, extra } of starts) offer(at * 4 + direction, extra, -1);
    for (let node = open.pop(); node !== undefined; node = open.pop()) {
      const at = node >> 2;
      const direction = node & 3;
      const end = ends.get(at);
      if (end !== undefined && end.direction === (direction + 2) % 4) return this.#path(node, before, from, to);
      const cost = best[node] ?? 0;
      for (const next of [direction, (direction + 1) % 4, (direction + 3) % 4]) {
        const step = STEPS[next];
        if (step === undefined) continue;
        const column = (at % this.#columns) + step[0];
        const row = Math.floor(at / this.#columns) + step[1];
        if (column < 0 || row < 0 || column >= this.#columns || row >= this.#rows) continue;
        const reached = row * this.#columns + column;
        const enters = this.#cost[reached] ?? BLOCKED;
        if (enters === BLOCKED) continue;
        const arrives = ends.get(reached)?.extra ?? 0;
        offer(reached * 4 + next, cost + enters + (next === direction ? 0 : BEND) + arrives, node);
      }
    }
    return null;
  }

  /**
   * Returns the points beside the border of a box where an arrow can begin or end, and the direction from the
   * box to each point.
   */
  #around(box: Box, other: Box) {
    const { x, y, width, height } = box;
    const points: { at: number; direction: number; extra: number }[] = [];
    // An arrow between a state and one of its inner states is inside the outer box.
    const isInside = contains(box, other);
    const off = (isInside ? -1 : 1) * (STEP + 2);
    const add = (px: number, py: number, direction: number, fromMiddle: number) => {
      const column = Math.round((px + MARGIN) / STEP);
      const row = Math.round((py + MARGIN) / STEP);
      if (column < 0 || row < 0 || column >= this.#columns || row >= this.#rows) return;
      const at = row * this.#columns + column;
      if (this.#cost[at] === BLOCKED) return;
      points.push({ at, direction: isInside ? (direction + 2) % 4 : direction, extra: fromMiddle / 8 });
    };
    const middle = { x: x + width / 2, y: y + height / 2 };
    for (let px = x + 6; px <= x + width - 6; px += STEP) {
      add(px, y + height + off, 1, Math.min(40, Math.abs(px - middle.x)));
      add(px, y - off, 3, Math.min(40, Math.abs(px - middle.x)));
    }
    for (let py = y + 6; py <= y + height - 6; py += STEP) {
      add(x + width + off, py, 0, Math.min(40, Math.abs(py - middle.y)));
      add(x - off, py, 2, Math.min(40, Math.abs(py - middle.y)));
    }
    return points;
  }

  #distanceTo({ x, y, width, height }: Rect): (at: number) => number {
    const [left, right] = [(x + MARGIN) / STEP - 2, (x + width + MARGIN) / STEP + 2];
    const [top, bottom] = [(y + MARGIN) / STEP - 2, (y + height + MARGIN) / STEP + 2];
    return (at) => {
      const column = at % this.#columns;
      const row = Math.floor(at / this.#columns);
      return Math.max(0, left - column, column - right) + Math.max(0, top - row, row - bottom);
    };
  }

  #path(last: number, before: Int32Array, from: Box, to: Box): readonly Point[] {
    const points: Point[] = [];
    for (let node = last; node !== -1; node = before[node] ?? -1) {
      const at = node >> 2;
      points.push({ x: (at % this.#columns) * STEP - MARGIN, y: Math.floor(at / this.#columns) * STEP - MARGIN });
      // Increase the cost of the used points, so that a later arrow takes another route if possible.
      this.#cost[at] = Math.min(BLOCKED - 1, (this.#cost[at] ?? 1) + OVER);
    }
    points.reverse();
    const [first, end] = [points[0], points.at(-1)];
    if (first === undefined || end === undefined) return [];
    return corners([atBorder(from, first), ...points, atBorder(to, end)]);
  }
}

const titleWidth = ({ state, width }: Box) => Math.min(width, state.key.length * 7.5 + 18);

const contains = (outer: Rect, inner: Rect) =>
  outer.x <= inner.x &&
  outer.y <= inner.y &&
  outer.x + outer.width >= inner.x + inner.width &&
  outer.y + outer.height >= inner.y + inner.height;

/** Returns the point of the border of a box that is nearest to `point`. */
function atBorder({ x, y, width, height }: Rect, point: Point): Point {
  const sides: readonly [distance: number, at: Point][] = [
    [Math.abs(point.x - x), { x, y: point.y }],
    [Math.abs(point.x - x - width), { x: x + width, y: point.y }],
    [Math.abs(point.y - y), { x: point.x, y }],
    [Math.abs(point.y - y - height), { x: point.x, y: y + height }],
  ];
  const isBeside = ({ x: px, y: py }: Point) =>
    px >= x - 1 && px <= x + width + 1 && py >= y - 1 && py <= y + height + 1;
  const [nearest] = sides.filter(([, at]) => isBeside(at)).toSorted(([one], [other]) => one - other);
  return nearest?.[1] ?? point;
}

/** Removes the points that are not corners, because they are within a straight line. */
function corners(points: readonly Point[]): readonly Point[] {
  return points.filter((point, at) => {
    const [one, other] = [points[at - 1], points[at + 1]];
    if (one === undefined || other === undefined) return true;
    return !((one.x === point.x && other.x === point.x) || (one.y === point.y && other.y === point.y));
  });
}

/**
 * Returns an SVG path with round corners. It ends `short` pixels before the last point, where the arrowhead
 * begins.
 */
export function pathOf(points: readonly Point[], radius: number, short: number): string {
  const cut = points.map((point, at) => {
    const last = points[at - 1];
    return at === points.length - 1 && last !== undefined ? toward(point, last, short) : point;
  });
  return cut
    .map((point, at) => {
      const [one, other] = [cut[at - 1], cut[at + 1]];
      if (one === undefined) return `M${point.x} ${point.y}`;
      if (other === undefined) return `L${point.x} ${point.y}`;
      const [begin, end] = [toward(point, one, radius), toward(point, other, radius)];
      return `L${begin.x} ${begin.y}Q${point.x} ${point.y} ${end.x} ${end.y}`;
    })
    .join('');
}

function toward(from: Point, to: Point, distance: number): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  if (length === 0) return from;
  const part = Math.min(distance, length / 2) / length;
  const round = (value: number) => Math.round(value * 10) / 10;
  return { x: round(from.x + (to.x - from.x) * part), y: round(from.y + (to.y - from.y) * part) };
}

/** A priority queue of numbers with the lowest cost first. */
class Heap {
  readonly #items: { readonly node: number; readonly cost: number }[] = [];

  push(node: number, cost: number): void {
    const items = this.#items;
    items.push({ node, cost });
    for (let at = items.length - 1; at > 0; ) {
      const up = (at - 1) >> 1;
      if ((items[up]?.cost ?? 0) <= cost) break;
      this.#swap(at, up);
      at = up;
    }
  }

  pop(): number | undefined {
    const items = this.#items;
    const top = items[0];
    const last = items.pop();
    if (top === undefined || last === undefined) return undefined;
    if (items.length > 0) {
      items[0] = last;
      for (let at = 0; ; ) {
        const [left, right] = [2 * at + 1, 2 * at + 2];
        let least = at;
        for (const child of [left, right])
          if ((items[child]?.cost ?? Number.POSITIVE_INFINITY) < (items[least]?.cost ?? 0)) least = child;
        if (least === at) break;
        this.#swap(at, least);
        at = least;
      }
    }
    return top.node;
  }

  #swap(one: number, other: number): void {
    const items = this.#items;
    const [a, b] = [items[one], items[other]];
    if (a === undefined || b === undefined) return;
    items[one] = b;
    items[other] = a;
  }
}
