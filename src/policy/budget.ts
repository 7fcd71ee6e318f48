/** How large a program may grow, in intervals of all its tables, and how many steps its making may take. */
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
  private usedEntries = 0;
  private usedSteps = 0;

  constructor(private readonly limits: CompileLimits) {}

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
