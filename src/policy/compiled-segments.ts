import { Budget } from './budget.js';
import { Cells } from './cells.js';
import type { Segment } from './segment.js';
import { Sequences } from './sequences.js';

/** Segments by the lists of rules that they were compiled of; null where these can match nothing. */
export class CompiledSegments {
  private readonly runs = new Sequences(Budget.unlimited, 'segments', 1);
  private readonly segments: (Segment | null)[] = [];
  private readonly scratch = new Cells(16);

  /** `lists` are the numbers of lists of rules, in order. Undefined where they were not compiled. */
  get(lists: readonly number[]): Segment | null | undefined {
    const run = this.runs.find(this.cellsOf(lists), 0, lists.length);
    return run === undefined ? undefined : this.segments[run];
  }

  set(lists: readonly number[], segment: Segment | null): void {
    this.segments[this.runs.intern(this.cellsOf(lists), 0, lists.length)] = segment;
  }

  private cellsOf(lists: readonly number[]): Uint32Array {
    this.scratch.length = 0;
    for (const list of lists) this.scratch.push(list);
    return this.scratch.array;
  }
}
