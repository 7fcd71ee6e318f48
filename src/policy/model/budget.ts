/** How many intervals of all tables a program may take, those it is made from included, and how many steps. */
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

/** What a part of a compilation used. */
export type Used = { readonly entries: number; readonly steps: number };

/** The policy's rules overlap so much that its program would be larger than is sensible. */
export class CompileTooLarge extends Error {
  readonly code = 'compile_too_large';
  constructor(
    /** What was growing when the limit was passed. */
    readonly table: CompileTable,
    /** At least so much is needed. */
    readonly need: number,
    readonly limit: number,
  ) {
    super(`compile the policy: ${table} grew past the limit: at least ${need} are needed, and ${limit} are allowed`);
  }
}

/** Counts what a compilation uses, and stops it before it uses too much. */
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
