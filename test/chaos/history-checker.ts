import { linearisation, type Step } from './linearisation.js';

/** An operation of one process on a register. Times are in ms of one monotonic clock. */
export type Operation = {
  readonly process: string;
  readonly kind: 'read' | 'write';
  readonly call: number;
  /** The time at which the operation returned; Infinity if the outcome is unknown. */
  readonly return: number;
  /** The value that was written or read. Each write has a new value, and never the initial value. */
  readonly value: string;
  /**
   * For a compare-and-swap, the value that the register must have. Null for an unconditional write and for
   * a read.
   */
  readonly expected: string | null;
  /**
   * `failed`: the operation has no effect. `unknown`: the operation takes effect at any time after its call,
   * or never.
   */
  readonly outcome: 'ok' | 'failed' | 'unknown';
};

export type HistoryVerdict =
  | { readonly linearizable: true }
  | {
      readonly linearizable: false;
      /** The first operation whose return makes the history not linearizable. */
      readonly operation: Operation;
      readonly detail: string;
    };

type Planned = Step & { readonly operation: Operation };

/** This many operations at the end of the linearised prefix are in the detail of a verdict. */
const SHOWN = 3;

/**
 * Decides whether the operations on a register with the value `initial` are linearizable: whether each one
 * that succeeded took effect at one moment between its call and its return. Throws a RangeError if two writes
 * that may have taken effect have the same value, if a write has the value `initial`, or if the times of an
 * operation do not fit its outcome.
 */
export function checkHistory(operations: readonly Operation[], initial: string): HistoryVerdict {
  const writers = writersOf(operations, initial);
  const returned = operations
    .filter(({ outcome }) => outcome === 'ok')
    .sort((left, right) => left.return - right.return);
  const orderOf = (count: number): Planned[] | null =>
    linearisation(plannedOf(returned.slice(0, count), writers), initial);
  if (orderOf(returned.length) !== null) return { linearizable: true };

  // A history that is not linearizable does not become linearizable when more operations return.
  let good = 0;
  for (let bad = returned.length; bad - good > 1; ) {
    const middle = (good + bad) >> 1;
    if (orderOf(middle) === null) bad = middle;
    else good = middle;
  }
  const [operation] = returned.slice(good);
  const prefix = orderOf(good);
  if (operation === undefined || prefix === null) throw new Error('the shortest bad history was not found');
  return { linearizable: false, operation, detail: detailOf(operation, prefix, initial) };
}

/** Returns the writes that took effect or may have taken effect, by their value. */
function writersOf(operations: readonly Operation[], initial: string): ReadonlyMap<string, Operation> {
  const writers = new Map<string, Operation>();
  for (const operation of operations) {
    const { kind, call, value, outcome } = operation;
    const isOpen = operation.return === Number.POSITIVE_INFINITY;
    if (!Number.isFinite(call) || !(operation.return >= call) || isOpen !== (outcome === 'unknown'))
      throw new RangeError(`wrong times of the ${textOf(operation)}`);
    if (kind === 'read' || outcome === 'failed') continue;
    const other = writers.get(value);
    if (other !== undefined) throw new RangeError(`the same value: ${textOf(other)}, ${textOf(operation)}`);
    if (value === initial) throw new RangeError(`the initial value: ${textOf(operation)}`);
    writers.set(value, operation);
  }
  return writers;
}

/**
 * Returns the steps that must be linearised: the operations in `returned`, and the writes whose values these
 * observe, directly or through other compare-and-swaps. Such a write did take effect, at any time after its
 * call. All other writes may have had no effect. They need no step: no operation could tell the difference.
 */
function plannedOf(returned: readonly Operation[], writers: ReadonlyMap<string, Operation>): Planned[] {
  const dues = new Map(returned.map((operation) => [operation, operation.return]));
  const writerOf = (operation: Operation): Operation | undefined => {
    const observed = observedBy(operation);
    return observed === null ? undefined : writers.get(observed);
  };
  for (const observer of returned) {
    let writer = writerOf(observer);
    while (writer !== undefined && !dues.has(writer)) {
      dues.set(writer, Number.POSITIVE_INFINITY);
      writer = writerOf(writer);
    }
  }
  return [...dues].map(([operation, due]) => ({
    operation,
    call: operation.call,
    due,
    observes: observedBy(operation),
    leaves: operation.kind === 'write' ? operation.value : null,
  }));
}

function observedBy({ kind, value, expected }: Operation): string | null {
  return kind === 'read' ? value : expected;
}

function detailOf(operation: Operation, prefix: readonly Planned[], initial: string): string {
  const value = prefix.findLast(({ leaves }) => leaves !== null)?.leaves ?? initial;
  const last = prefix.slice(-SHOWN).map((step) => textOf(step.operation));
  const hidden = prefix.length > last.length ? '…, ' : '';
  const shown = last.length === 0 ? '' : ` (${hidden}${last.join(', ')})`;
  return (
    `no moment is left for the ${textOf(operation)}: the longest linearised prefix has ${prefix.length} ` +
    `operations${shown} and ends with the value ${value}`
  );
}

function textOf({ process, kind, value, expected, call, return: end }: Operation): string {
  const what = expected === null ? `${kind} of ${value}` : `${kind} of ${value} after ${expected}`;
  return `${what} by ${process} from ${msOf(call)} to ${msOf(end)} ms`;
}

function msOf(time: number): number {
  return Number(time.toFixed(3));
}
