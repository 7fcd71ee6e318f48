const HOUR_S = 3_600;

/** The seconds of one hour in which the node recorded, and the events that are missing. */
export type RecordedHour = {
  readonly hour: number;
  readonly recordedS: number;
  readonly lost: number;
  readonly unrecorded: number;
};
type Amounts = Omit<RecordedHour, 'hour'>;

const NOTHING: Amounts = { recordedS: 0, lost: 0, unrecorded: 0 };

/** Sums by hours since 1970. */
export class RecordedHours {
  readonly #hours: Map<number, Amounts>;

  constructor(hours: readonly RecordedHour[] = []) {
    this.#hours = new Map(hours.map(({ hour, ...amounts }) => [hour, amounts]));
  }

  add(atS: number, { recordedS = 0, lost = 0, unrecorded = 0 }: Partial<Amounts>): void {
    const hour = Math.floor(atS / HOUR_S);
    const known = this.#hours.get(hour) ?? NOTHING;
    this.#hours.set(hour, {
      recordedS: known.recordedS + recordedS,
      lost: known.lost + lost,
      unrecorded: known.unrecorded + unrecorded,
    });
  }

  /** Returns the sums of the hours that end after a time. */
  since(fromS: number): Amounts {
    const sum = { ...NOTHING };
    for (const { hour, recordedS, lost, unrecorded } of this.list()) {
      if ((hour + 1) * HOUR_S <= fromS) continue;
      sum.recordedS += recordedS;
      sum.lost += lost;
      sum.unrecorded += unrecorded;
    }
    return sum;
  }

  expire(beforeS: number): void {
    for (const hour of this.#hours.keys()) if ((hour + 1) * HOUR_S <= beforeS) this.#hours.delete(hour);
  }

  list(): RecordedHour[] {
    return [...this.#hours].map(([hour, amounts]) => ({ hour, ...amounts }));
  }
}
