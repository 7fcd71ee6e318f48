import { stripVTControlCharacters } from 'node:util';

/** What a text takes on the screen, without its colours. */
const widthOf = (text: string): number => stripVTControlCharacters(text).length;

/** Columns as wide as their widest cell, under their titles; without titles where there are none. */
export function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = titles.length > 0 ? [titles, ...rows] : rows;
  const columns = Math.max(0, ...lines.map((line) => line.length));
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
