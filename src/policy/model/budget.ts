/**
 * The maximum number of intervals of all tables of a program, intermediate tables included, and of steps and
 * ranks.
 */
export type CompileLimits = { readonly entries: number; readonly steps: number; readonly ranks: number };

export type CompileTable =
  | 'sources'
  | 'lists'
  | 'segments'
  | 'destinations'
  | 'leaves'
  | 'slices'
  | 'names'
  | 'ranks'
  | 'steps';

/** The share of the budget that a part of a compilation used. */
export type Used = { readonly entries: number; readonly steps: number };

/** The rules of the policy overlap so much that its program would exceed the limits. */
export class CompileTooLarge extends Error {
  readonly code = 'compile_too_large';
  constructor(
    /** The table that was growing when the limit was exceeded. */
    readonly table: CompileTable,
    /** A lower bound of the need. */
    readonly need: number,
    readonly limit: number,
  ) {
    super(`compile the policy: ${table} grew past the limit: at least ${need} are needed, and ${limit} are allowed`);
  }
}

/** Counts the resources of a compilation, and stops it before it exceeds the limits. */
export class Budget {
  static readonly unlimited = new Budget({
    entries: Number.POSITIVE_INFINITY,
    steps: Number.POSITIVE_INFINITY,
    ranks: Number.POSITIVE_INFINITY,
  });

  private usedEntries = 0;
  private usedSteps = 0;

  constructor(private readonly limits: CompileLimits) {}

  get used(): Used {
    return { entries: this.usedEntries, steps: this.usedSteps };
  }

  ranks(count: number): void {
    if (count > this.limits.ranks) throw new CompileTooLarge('ranks', count, this.limits.ranks);
  }

  entries(table: CompileTable, count: number): void {
    this.usedEntries += count;
    if (this.usedEntries > this.limits.entries) {
      throw new CompileTooLarge(table, this.usedEntries, this.limits.entries);
    }
  }

  steps(count: number): void {
    this.usedSteps += count;
    if (this.usedSteps > this.limits.steps) throw new CompileTooLarge('steps', this.usedSteps, this.limits.steps);
  }
}
