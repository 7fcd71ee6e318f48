import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { decodePng, encodePng, type Image } from './png.js';

const FOLDER = fileURLToPath(new URL('snapshots/', import.meta.url));
const COLOURS = 48;
/** The edge of the squares that are compared, in pixels. Versions of Chromium differ inside of them. */
const SQUARE = 6;
/** The difference of the mean of a colour channel at which a square differs. */
const VISIBLE = 10;
/** The squares of a picture that may differ: about a word. */
const TOLERATED = 12;
/** A page that still loads is compared again for this long. */
const SETTLED_MS = 10_000;

/** Whether this run writes the snapshots (`npm run screenshots -- --snapshots`) instead of comparing them. */
const isWriting = process.env.WEIR_SNAPSHOTS === 'write';

/**
 * Compares the page with the snapshot `name`. Returns null if it is equal, else the number of squares that
 * differ, the texts of the page at these squares, and the file with the picture of the page.
 */
export async function differenceOf(page: Page, name: string): Promise<string | null> {
  const file = join(FOLDER, `${name}.png`);
  if (isWriting) {
    writeFileSync(file, encodePng(await settled(page), COLOURS));
    return null;
  }
  if (!existsSync(file)) return `there is no snapshot ${name}: npm run screenshots -- --snapshots`;
  const expected = decodePng(readFileSync(file));
  const deadline = performance.now() + SETTLED_MS;
  for (;;) {
    const seen = await pictureOf(page);
    const differing = squaresApart(seen, expected);
    if (differing.length <= TOLERATED) return null;
    if (performance.now() < deadline) continue;
    const picture = join(tmpdir(), `weir-snapshot-${name}.png`);
    writeFileSync(picture, encodePng(seen, COLOURS));
    const texts = await textsAt(page, differing, seen);
    return `${differing.length} squares differ from the snapshot ${name}, at ${texts.join(', ')}: see ${picture}`;
  }
}

/** A picture of the page that equals the picture before it. */
async function settled(page: Page): Promise<Image> {
  let before = await pictureOf(page);
  for (;;) {
    await page.waitForTimeout(1_000);
    const next = await pictureOf(page);
    if (squaresApart(before, next).length === 0) return next;
    before = next;
  }
}

/** Whether no part of the page waits for its data. */
const IS_LOADED = `document.querySelector('main [aria-busy="true"]') === null && !/^…$/m.test(document.querySelector('main').innerText)`;

/** A picture of the page in which numbers, times and figures are masked. */
async function pictureOf(page: Page): Promise<Image> {
  while (!(await page.evaluate<boolean>(IS_LOADED))) await page.waitForTimeout(100);
  await page.evaluate(MASK);
  return decodePng(await page.screenshot({ animations: 'disabled', caret: 'hide' }));
}

/**
 * Replaces each word with a digit, with the unit behind it, each month and each group of a fingerprint by one
 * digit. Hides bars, drawings, and texts that depend on the kernel or on the start of the node: the details
 * of checks, and the transitions of a statechart. Leaves the text of the editor, which would take a
 * replacement as an edit.
 */
const MASK = `(() => {
  const word = /[^\\s]*\\d[^\\s]*( (ms|s|min|h|d|KiB|MiB|B)\\b,?)?|\\b[a-f]{8}\\b|\\b(Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)\\b/g;
  const maskIn = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
      if (node.shadowRoot != null) maskIn(node.shadowRoot);
      if (node.matches?.('canvas, meter, .before')) node.style.visibility = 'hidden';
      if (node.nodeType !== Node.TEXT_NODE || node.parentElement?.closest('script, style, .cm-content') != null) continue;
      const masked = node.parentElement?.closest('time, .checks td:nth-child(3)') != null ? '0' : node.data.replace(word, '0').replace(/0( 0)+/g, '0');
      if (masked !== node.data) node.data = masked;
    }
  };
  maskIn(document.body);
})()`;

/** The middle of a square in a picture, in pixels. */
type Middle = { readonly x: number; readonly y: number };

/** Returns the squares whose mean colours differ visibly; all of them if the sizes differ. */
export function squaresApart(one: Image, other: Image): readonly Middle[] {
  const [columns, rows] = [Math.ceil(one.width / SQUARE), Math.ceil(one.height / SQUARE)];
  const all = Array.from({ length: columns * rows }, (_, square) => ({
    x: ((square % columns) + 0.5) * SQUARE,
    y: (Math.floor(square / columns) + 0.5) * SQUARE,
  }));
  if (one.width !== other.width || one.height !== other.height) return all;
  const sums = new Int32Array(columns * rows * 3);
  for (let at = 0; at < one.rgb.length; at++) {
    const pixel = Math.floor(at / 3);
    const square = Math.floor(pixel / one.width / SQUARE) * columns + Math.floor((pixel % one.width) / SQUARE);
    const index = square * 3 + (at % 3);
    sums[index] = (sums[index] ?? 0) + (one.rgb[at] ?? 0) - (other.rgb[at] ?? 0);
  }
  const most = VISIBLE * SQUARE * SQUARE;
  return all.filter((_, square) => sums.subarray(square * 3, square * 3 + 3).some((sum) => Math.abs(sum) > most));
}

/** Returns the texts of the innermost elements at `middles`, in quotes, at most 60 characters each. */
async function textsAt(page: Page, middles: readonly Middle[], { width }: Image): Promise<readonly string[]> {
  return page.evaluate<string[]>(`[...new Set(${JSON.stringify(middles)}.map(({ x, y }) => {
    const scale = innerWidth / ${width};
    return JSON.stringify((document.elementFromPoint(x * scale, y * scale)?.textContent ?? '').trim().slice(0, 60));
  }))]`);
}
