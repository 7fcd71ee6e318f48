import { nameOf, type State } from './model.js';

/** A rectangle in CSS pixels, from the upper left corner of the drawing. */
export type Rect = { readonly x: number; readonly y: number; readonly width: number; readonly height: number };
export type Box = Rect & {
  readonly state: State;
  /** Whether the inner states of this state are hidden. */
  readonly isFolded: boolean;
};
export type Layout = {
  readonly width: number;
  readonly height: number;
  /** The boxes of all states except the root state. Outer boxes come before inner ones. */
  readonly boxes: readonly Box[];
};

export type Options = {
  /** Returns the width of a text in the font of the boxes, in CSS pixels. */
  readonly textWidth: (text: string) => number;
  readonly isFolded: (state: State) => boolean;
};

export const LEAF_HEIGHT = 24;
export const TITLE_HEIGHT = 22;
const PAD_X = 9;
const GAP_X = 20;
const GAP_Y = 14;
const INSET = 10;
/** Free space to the right of a title, in CSS pixels, for arrows that end there. */
const TITLE_END = 14;

type Size = { readonly width: number; readonly height: number };
type Placed = Size & { readonly place: (x: number, y: number, boxes: Box[]) => void };

/**
 * Places the boxes of a chart into a width so that the drawing is as low as possible. States keep their
 * order: rows from left to right, with consecutive simple states wrapped as a block beside nested ones.
 */
export function layOut(root: State, width: number, options: Options): Layout {
  const placed = content(root.children, width, options, new Map());
  const boxes: Box[] = [];
  placed.place(0, 0, boxes);
  return { width: placed.width, height: placed.height, boxes };
}

type Memo = Map<string, Placed>;

function content(children: readonly State[], width: number, options: Options, memo: Memo): Placed {
  const blocks: (State | readonly State[])[] = [];
  for (const child of children) {
    const last = blocks.at(-1);
    if (!isSimple(child, options)) blocks.push(child);
    else if (last !== undefined && !isState(last)) blocks[blocks.length - 1] = [...last, child];
    else blocks.push([child]);
  }
  const fitted = (block: State | readonly State[], within: number): Placed =>
    isState(block)
      ? nested(block, within, options, memo)
      : row(
          block.map((leaf) => simple(leaf, options)),
          within,
        );
  let best: Placed | undefined;
  // Try several widths for each block, because narrow blocks fit side by side.
  for (const part of [1, 0.75, 0.66, 0.5, 0.4, 0.33, 0.25]) {
    const within = Math.floor(width * part - (part === 1 ? 0 : GAP_X));
    if (best !== undefined && within < 80) break;
    const tried = row(
      blocks.map((block) => fitted(block, within)),
      width,
    );
    if (best === undefined || cost(tried, width) < cost(best, width)) best = tried;
  }
  return best ?? row([], width);
}

/**
 * Rates a layout: less is better. The height counts, and a layout that is wider than the page is much worse.
 */
const cost = ({ width, height }: Size, within: number) => height + width / 50 + Math.max(0, width - within) * 100;

const isState = (block: State | readonly State[]): block is State => !Array.isArray(block);
const isSimple = (state: State, { isFolded }: Options) => state.children.length === 0 || isFolded(state);

function simple(state: State, { textWidth, isFolded }: Options): Placed {
  const folded = state.children.length > 0 && isFolded(state);
  const width = Math.ceil(textWidth(labelOf(state, folded))) + 2 * PAD_X;
  return {
    width,
    height: LEAF_HEIGHT,
    place: (x, y, boxes) => boxes.push({ state, x, y, width, height: LEAF_HEIGHT, isFolded: folded }),
  };
}

/** Returns the text of a box. A folded state (with hidden inner states) shows how many states it hides. */
export const labelOf = (state: State, isFolded: boolean): string =>
  isFolded ? `${nameOf(state)} +${descendants(state)}` : nameOf(state);

const descendants = (state: State): number => state.children.reduce((sum, child) => sum + 1 + descendants(child), 0);

function nested(state: State, within: number, options: Options, memo: Memo): Placed {
  const key = `${state.id} ${within}`;
  const known = memo.get(key);
  if (known !== undefined) return known;
  const inner = content(state.children, within - 2 * INSET, options, memo);
  const width = Math.max(inner.width + 2 * INSET, Math.ceil(options.textWidth(nameOf(state))) + 2 * PAD_X + TITLE_END);
  const height = TITLE_HEIGHT + inner.height + INSET;
  const placed: Placed = {
    width,
    height,
    place: (x, y, boxes) => {
      boxes.push({ state, x, y, width, height, isFolded: false });
      inner.place(x + INSET, y + TITLE_HEIGHT, boxes);
    },
  };
  memo.set(key, placed);
  return placed;
}

/** Places boxes in rows from left to right. Begins a new row at the maximum width. */
function row(things: readonly Placed[], within: number): Placed {
  const places: { readonly thing: Placed; readonly x: number; readonly y: number }[] = [];
  let [x, y, rowHeight, width] = [0, 0, 0, 0];
  for (const thing of things) {
    if (x > 0 && x + thing.width > within) {
      y += rowHeight + GAP_Y;
      x = 0;
      rowHeight = 0;
    }
    places.push({ thing, x, y });
    width = Math.max(width, x + thing.width);
    x += thing.width + GAP_X;
    rowHeight = Math.max(rowHeight, thing.height);
  }
  return {
    width,
    height: y + rowHeight,
    place: (left, top, boxes) => {
      for (const each of places) each.thing.place(left + each.x, top + each.y, boxes);
    },
  };
}
