export type DiffLine = { readonly kind: 'same' | 'removed' | 'added'; readonly text: string };

/** The comparison stops if it finds more different lines than this. */
const MAX_DIFFERENCES = 2_000;

/**
 * Compares two texts line by line (Myers' algorithm). Returns null if they differ in more than
 * `MAX_DIFFERENCES` lines.
 */
export function diffLines(before: string, after: string): DiffLine[] | null {
  const [old, now] = [before.split('\n'), after.split('\n')];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  const middle = shortestEdit(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  if (middle === null) return null;
  const same = (text: string): DiffLine => ({ kind: 'same', text });
  return [...old.slice(0, head).map(same), ...middle, ...old.slice(old.length - tail).map(same)];
}

function shortestEdit(old: readonly string[], now: readonly string[]): DiffLine[] | null {
  const [rows, columns] = [old.length, now.length];
  const furthest = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  for (let edits = 0; edits <= Math.min(rows + columns, MAX_DIFFERENCES); edits++) {
    trace.push(new Map(furthest));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const isDown = goesDown(furthest, diagonal, edits);
      let x = isDown ? (furthest.get(diagonal + 1) ?? 0) : (furthest.get(diagonal - 1) ?? 0) + 1;
      let y = x - diagonal;
      while (x < rows && y < columns && old[x] === now[y]) {
        x++;
        y++;
      }
      furthest.set(diagonal, x);
      if (x >= rows && y >= columns) return backtrack(trace, old, now);
    }
  }
  return null;
}

const goesDown = (furthest: ReadonlyMap<number, number>, diagonal: number, edits: number) =>
  diagonal === -edits ||
  (diagonal !== edits && (furthest.get(diagonal - 1) ?? -1) < (furthest.get(diagonal + 1) ?? -1));

function backtrack(
  trace: readonly ReadonlyMap<number, number>[],
  old: readonly string[],
  now: readonly string[],
): DiffLine[] {
  const lines: DiffLine[] = [];
  let [x, y] = [old.length, now.length];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const furthest = trace[edits] as ReadonlyMap<number, number>;
    const diagonal = x - y;
    const from = goesDown(furthest, diagonal, edits) ? diagonal + 1 : diagonal - 1;
    const [beforeX, beforeY] = [furthest.get(from) ?? 0, (furthest.get(from) ?? 0) - from];
    while (x > beforeX && y > beforeY && x > 0 && y > 0) {
      x--;
      y--;
      lines.push({ kind: 'same', text: old[x] as string });
    }
    if (edits === 0) break;
    if (x === beforeX) lines.push({ kind: 'added', text: now[--y] as string });
    else lines.push({ kind: 'removed', text: old[--x] as string });
  }
  return lines.reverse();
}

/**
 * Removes equal lines that are more than `around` lines away from a difference. Null stands for the removed
 * lines.
 */
export function withContext(lines: readonly DiffLine[], around = 3): (DiffLine | null)[] {
  const near = new Uint8Array(lines.length);
  lines.forEach(({ kind }, at) => {
    if (kind !== 'same') near.fill(1, Math.max(0, at - around), at + around + 1);
  });
  const shown: (DiffLine | null)[] = [];
  lines.forEach((line, at) => {
    if (near[at] === 1) shown.push(line);
    else if (shown.at(-1) !== null) shown.push(null);
  });
  return shown;
}

type Hunk = { readonly from: number; readonly to: number; readonly lines: readonly string[] };

/** The edits of a text as replaced ranges of lines; null if there are too many. */
function hunksOf(before: string, after: string): Hunk[] | null {
  const lines = diffLines(before, after);
  if (lines === null) return null;
  const hunks: { from: number; to: number; lines: string[] }[] = [];
  let at = 0;
  let open: { from: number; to: number; lines: string[] } | null = null;
  for (const { kind, text } of lines) {
    if (kind === 'same') {
      open = null;
      at++;
      continue;
    }
    if (open === null) {
      open = { from: at, to: at, lines: [] };
      hunks.push(open);
    }
    if (kind === 'added') open.lines.push(text);
    else {
      at++;
      open.to = at;
    }
  }
  return hunks;
}

/**
 * Applies two edits of the same text. Returns null if they change the same or adjacent lines, so that the
 * user must decide.
 */
export function mergeTexts(base: string, mine: string, theirs: string): string | null {
  const [ours, others] = [hunksOf(base, mine), hunksOf(base, theirs)];
  if (ours === null || others === null) return null;
  const isClose = (one: Hunk, other: Hunk) => one.from <= other.to && other.from <= one.to;
  if (ours.some((one) => others.some((other) => isClose(one, other)))) return null;
  const lines = base.split('\n');
  for (const { from, to, lines: replaced } of [...ours, ...others].sort((one, other) => other.from - one.from))
    lines.splice(from, to - from, ...replaced);
  return lines.join('\n');
}
