import type { Range } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { Budget } from '#policy/model/budget.js';
import type { Axis } from './axis.js';
import { ALWAYS, type Conditions } from './conditions.js';
import { type Change, DecisionLists, type Entry } from './decision-lists.js';
import { DiagramLevel } from './diagram-level.js';
import { Pieces, type ValueSet } from './pieces.js';
import type { Shape } from './rule-shape.js';

/** The number of possible values of `portMapKey` (protocol and port), and then the number of source ports. */
export const KEYS = portMapKey(255, 0xffff) + 1;
export const PORTS = 0x1_0000;

/**
 * The decision diagrams of rules. Their levels are destination, `portMapKey` (protocol and port) and source
 * port, and the last level leads to a decision list. A diagram is a number; equal diagrams have the same
 * number. Diagram 0 decides no flow.
 */
export class RuleDiagrams {
  readonly #pieces = new Pieces(Budget.unlimited);
  readonly #lists: DecisionLists;
  readonly #ports: DiagramLevel;
  readonly #keys: DiagramLevel;
  readonly #destinations: DiagramLevel;

  /** `axis`: the destination addresses, divided at each bound of a rule or of the question. */
  constructor(
    private readonly axis: Axis,
    conditions: Conditions,
    budget: Budget,
  ) {
    this.#lists = new DecisionLists(conditions, budget);
    this.#ports = new DiagramLevel(PORTS, this.#lists, this.#pieces, budget);
    this.#keys = new DiagramLevel(KEYS, this.#ports, this.#pieces, budget);
    this.#destinations = new DiagramLevel(axis.length, this.#keys, this.#pieces, budget);
  }

  /**
   * Returns the diagram that decides the flows of a set (shape) by a decision list with these entries, and
   * decides no other flow.
   */
  within({ destinations, keys, sourcePorts }: Shape, entries: readonly Entry[]): number {
    const list = this.#lists.of(entries);
    const ports = this.#ports.node(intervalsOf(sourcePorts ?? EVERY_PORT), list);
    return this.#destinations.node(this.#intervalsOf(destinations), this.#keys.node(intervalsOf(keys), ports));
  }

  /** Returns the diagram that decides every flow by a decision list with these entries. */
  everywhere(entries: readonly Entry[]): number {
    return this.within(EVERYTHING, entries);
  }

  /**
   * Returns the diagram that decides no flow of a set (shape), and decides all other flows as outside of the
   * question.
   */
  mask({ destinations, keys, sourcePorts }: Shape): number {
    const outside = this.#lists.of([{ condition: ALWAYS, outcome: 'outside', tag: 0 }]);
    const everyPort = this.#ports.node([[0, PORTS]], outside);
    const everyKey = this.#keys.node([[0, KEYS]], everyPort);
    const ports = sourcePorts === null ? 0 : this.#ports.node(intervalsOf(sourcePorts), 0, outside);
    const below = this.#keys.node(intervalsOf(keys), ports, everyPort);
    return this.#destinations.node(this.#intervalsOf(destinations), below, everyKey);
  }

  /** Returns the diagram that decides by `first`, and by `second` where `first` decides nothing. */
  orElse(first: number, second: number): number {
    return this.#destinations.orElse(first, second);
  }

  /** Combines all these diagrams in order by `orElse`. */
  sequence(diagrams: readonly number[]): number {
    return this.#destinations.sequence(diagrams);
  }

  /** Returns whether a diagram decides every flow. */
  isClosed(diagram: number): boolean {
    return this.#destinations.isClosed(diagram);
  }

  /**
   * Returns the numbers of the sets of flows (pieces) that two diagrams decide differently; none if they
   * decide every flow in the same way.
   */
  differences(one: number, other: number): readonly number[] {
    return this.#destinations.differences(one, other);
  }

  /**
   * Returns the flows of a piece. `destinations`: ranges of indexes of destination intervals (see `Axis`).
   */
  flowsOf(piece: number): {
    readonly destinations: ValueSet;
    readonly keys: ValueSet;
    readonly sourcePorts: ValueSet;
    readonly changes: readonly Change[];
  } {
    const [below, destinations] = this.#pieces.parts(piece);
    const [lowest, keys] = this.#pieces.parts(below);
    const [changes, ports] = this.#pieces.parts(lowest);
    return {
      destinations: this.#pieces.set(destinations),
      keys: this.#pieces.set(keys),
      sourcePorts: this.#pieces.set(ports),
      changes: this.#lists.changesOf(changes),
    };
  }

  #intervalsOf(destinations: Shape['destinations']): [number, number][] {
    if (destinations === null) return [[0, this.axis.length]];
    return destinations.map(({ start, end }) => [this.axis.indexOf(start), this.axis.indexOf(end)]);
  }
}

const EVERY_PORT: readonly Range[] = [{ low: 0, high: PORTS - 1 }];
const EVERYTHING: Shape = { destinations: null, keys: [{ low: 0, high: KEYS - 1 }], sourcePorts: null };

function intervalsOf(ranges: readonly Range[]): [number, number][] {
  return ranges.map(({ low, high }) => [low, high + 1]);
}
