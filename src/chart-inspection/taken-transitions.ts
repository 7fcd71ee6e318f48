import type { AnyMachineSnapshot, AnyStateMachine, AnyStateNode, AnyTransitionDefinition } from 'xstate';
import type { StatechartTransition } from '#bus/statecharts.js';
import { transitionOf, transitionsOf } from './chart-definition.js';

type Change = Pick<StatechartTransition, 'taken' | 'exited' | 'entered'>;

/** Maps each transition of a state machine to its index in the definition of the statechart. */
const indexes = new WeakMap<AnyStateMachine, ReadonlyMap<AnyTransitionDefinition, number>>();

/** The active states of one actor, and when it entered each of them. */
export class ActiveStates {
  readonly #machine: AnyStateMachine;
  #nodes: ReadonlySet<AnyStateNode>;
  /** When each active state was entered, in milliseconds since 1970. */
  readonly #enteredMs = new Map<AnyStateNode, number>();

  constructor(snapshot: AnyMachineSnapshot, nowMs: number) {
    this.#machine = snapshot.machine as AnyStateMachine;
    this.#nodes = new Set(snapshot._nodes);
    for (const node of this.#nodes) this.#enteredMs.set(node, nowMs);
  }

  /**
   * Records the transitions that the actor has taken to the states of `snapshot`. Returns the exited and
   * entered states in the order of the chart, outer states first.
   */
  take(transitions: readonly AnyTransitionDefinition[], snapshot: AnyMachineSnapshot, nowMs: number): Change {
    const domains = transitions.flatMap((transition) => domainOf(transition) ?? []);
    const next: ReadonlySet<AnyStateNode> = new Set(snapshot._nodes);
    // A state that a transition exits and enters again counts as exited, although it is active before and
    // after.
    const left = (node: AnyStateNode): boolean => !next.has(node) || domains.some((domain) => isInside(node, domain));
    const exited = inOrder([...this.#nodes].filter(left));
    const isExited = new Set(exited);
    const entered = inOrder([...next].filter((node) => !this.#nodes.has(node) || isExited.has(node)));
    const after = (node: AnyStateNode): number => Math.max(0, nowMs - (this.#enteredMs.get(node) ?? nowMs));
    const change: Change = {
      taken: transitions.flatMap((transition) => this.#named(transition) ?? []),
      exited: exited.map((node) => ({ state: node.id, afterMs: after(node) })),
      entered: entered.map(({ id }) => id),
    };
    for (const node of exited) this.#enteredMs.delete(node);
    for (const node of entered) this.#enteredMs.set(node, nowMs);
    this.#nodes = next;
    return change;
  }

  #named(transition: AnyTransitionDefinition): Change['taken'][number] | undefined {
    const known =
      indexes.get(this.#machine) ?? new Map(transitionsOf(this.#machine).map((of, index) => [of, index] as const));
    indexes.set(this.#machine, known);
    const index = known.get(transition);
    if (index === undefined) return undefined;
    const { source, targets, event, guard } = transitionOf(transition);
    return { index, source, targets, event, guard };
  }
}

const inOrder = (nodes: readonly AnyStateNode[]): readonly AnyStateNode[] =>
  nodes.toSorted((a, b) => a.order - b.order);

/** A transition exits the active states inside `state`, and `state` itself if `isSelf`. */
type Domain = { readonly state: AnyStateNode; readonly isSelf: boolean };

/**
 * Returns the states that a transition exits (its domain in SCXML); undefined for a transition without a
 * target, which exits no state.
 */
function domainOf({ source, target, reenter }: AnyTransitionDefinition): Domain | undefined {
  if (target === undefined || target.length === 0) return undefined;
  const state = source as AnyStateNode;
  const targets: readonly AnyStateNode[] = target;
  if (!reenter && targets.every((one) => one === state || isBelow(one, state))) return { state, isSelf: false };
  for (let outer = state.parent; outer !== undefined; outer = outer.parent) {
    const domain: AnyStateNode = outer;
    if (targets.every((one) => isBelow(one, domain))) return { state: domain, isSelf: false };
  }
  return { state: state.machine.root as AnyStateNode, isSelf: reenter };
}

const isInside = (node: AnyStateNode, { state, isSelf }: Domain): boolean =>
  isBelow(node, state) || (isSelf && node === state);

function isBelow(node: AnyStateNode, ancestor: AnyStateNode): boolean {
  for (let outer = node.parent; outer !== undefined; outer = outer.parent) if (outer === ancestor) return true;
  return false;
}
