/**
 * The limits of one compilation. `entries`: the maximum number of intervals in all tables together, including
 * intermediate tables. `steps`: the maximum number of steps in which port maps, lists and other tables are
 * merged. `ranks`: the maximum number of rules and defaults in the policy.
 */
export type CompileLimits = { readonly entries: number; readonly steps: number; readonly ranks: number };

export type CompileTable =
  | 'sources'
  | 'lists'
  | 'rule blocks'
  | 'destinations'
  | 'port maps'
  | 'source-port maps'
  | 'names'
  | 'ranks'
  | 'steps';

/** The table entries and merge steps that one section of a compilation used. */
export type Used = { readonly entries: number; readonly steps: number };

/**
 * Thrown when the compiled policy would exceed a limit of `CompileLimits`: it has too many rules, or its
 * rules overlap too much.
 */
export class CompileTooLarge extends Error {
  readonly code = 'compile_too_large';
  constructor(
    /** The name of the table that was growing when the limit was exceeded. */
    readonly table: CompileTable,
    /** A lower bound of the size that the table would need. */
    readonly need: number,
    readonly limit: number,
  ) {
    super(
      `compile the policy: ${table} exceeds its limit: at least ${need} entries are needed, and ${limit} are allowed`,
    );
  }
}

/**
 * Counts the table entries and merge steps of one compilation. Throws `CompileTooLarge` when a count exceeds
 * its limit.
 */
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
