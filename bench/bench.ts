/** A benchmark. `run` returns the measured figures, each with an optional bound. */
export type Bench = { readonly name: string; run(): Promise<readonly Row[]> };

export type Row = {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /**
   * The largest accepted value in `unit`. `atLeast` is the smallest accepted value. A row without `atMost`
   * and `atLeast` has no bound.
   */
  readonly atMost?: number;
  readonly atLeast?: number;
};

export function isKept(row: Row): boolean {
  return (
    (row.atMost === undefined || row.value <= row.atMost) && (row.atLeast === undefined || row.value >= row.atLeast)
  );
}

export function figureOf({ value, unit }: Row): string {
  return `${value >= 100 ? Math.round(value) : value.toPrecision(3)} ${unit}`.trimEnd();
}

/** Returns the bound of a row as text, or an empty text if the row has no bound. */
export function boundOf({ atMost, atLeast }: Row): string {
  return atMost !== undefined ? `≤ ${atMost}` : atLeast !== undefined ? `≥ ${atLeast}` : '';
}

export function tableOf(rows: readonly Row[]): string {
  const cells = rows.map((row) => {
    const bound = boundOf(row);
    return [row.what, figureOf(row), bound, bound === '' ? '' : isKept(row) ? 'kept' : 'MISSED'];
  });
  const widths = [0, 1, 2, 3].map((column) => Math.max(...cells.map((line) => line[column]?.length ?? 0)));
  return cells
    .map((line) => `  ${line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd())
    .join('\n');
}
