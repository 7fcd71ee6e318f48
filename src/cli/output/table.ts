import { stripVTControlCharacters } from 'node:util';
import { visibleLines } from './visible.js';

/** Escape line feeds, because a line feed in a cell would begin a new row. */
const visibleCell = (cell: string): string => visibleLines(cell).replaceAll('\n', '\\n');

/** Returns the number of characters that a text shows on the screen, without colour codes. */
const widthOf = (text: string): number => stripVTControlCharacters(text).length;

/** Each column is as wide as its widest cell. If `titles` is empty, there is no title row. */
export function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = (titles.length > 0 ? [titles, ...rows] : rows).map((line) => line.map(visibleCell));
  const columns = lines.reduce((most, line) => Math.max(most, line.length), 0);
  const widths = Array.from({ length: columns }, (_, column) =>
    lines.reduce((widest, line) => Math.max(widest, widthOf(line[column] ?? '')), 0),
  );
  return lines
    .map((line) => {
      const cells = line.map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - widthOf(cell)));
      return `${cells.join('  ').trimEnd()}\n`;
    })
    .join('');
}
