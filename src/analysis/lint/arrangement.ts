/**
 * A change of the order of the rules of a policy: some rules are removed, and some are evaluated at another
 * position of their group. A position is the number of a rule, or a fraction between two numbers.
 */
export class Arrangement {
  static readonly original = new Arrangement(new Set(), new Map());

  private constructor(
    readonly removed: ReadonlySet<number>,
    private readonly places: ReadonlyMap<number, number>,
  ) {}

  placeOf(number: number): number {
    return this.places.get(number) ?? number;
  }

  without(numbers: Iterable<number>): Arrangement {
    return new Arrangement(new Set([...this.removed, ...numbers]), this.places);
  }

  with(number: number, place: number): Arrangement {
    return new Arrangement(this.removed, new Map([...this.places, [number, place]]));
  }
}
