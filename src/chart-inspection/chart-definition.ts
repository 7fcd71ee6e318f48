import type { AnyStateMachine, AnyStateNode, AnyTransitionDefinition } from 'xstate';
import type { ChartDefinition, ChartState, ChartTransition } from '#bus/statecharts.js';

/**
 * Returns the states and transitions of a statechart as plain data. The order is that of the chart's source,
 * and depends on the chart alone: the index of a transition is the same in all machines of one chart.
 */
export function chartDefinitionOf(machine: AnyStateMachine): ChartDefinition {
  return {
    id: machine.id,
    states: nodesUnder(machine.root).map(stateOf),
    transitions: transitionsOf(machine).map(transitionOf),
  };
}

/** Returns the transitions of a machine in the order of `ChartDefinition.transitions`. */
export function transitionsOf(machine: AnyStateMachine): readonly AnyTransitionDefinition[] {
  return nodesUnder(machine.root).flatMap((node) => [
    ...((node.always ?? []) as AnyTransitionDefinition[]),
    ...[...(node.transitions as ReadonlyMap<string, AnyTransitionDefinition[]>).values()].flat(),
  ]);
}

export function transitionOf(transition: AnyTransitionDefinition): ChartTransition {
  return {
    source: idOf(transition.source),
    targets: (transition.target ?? []).map(idOf),
    event: eventOf(transition.eventType as string),
    guard: nameOf(transition.guard),
    actions: namesOf(transition.actions),
    reenter: transition.reenter,
  };
}

function stateOf(node: AnyStateNode): ChartState {
  const [initial] = node.type === 'compound' ? (node.initial.target ?? []) : [];
  const detail = (node.meta as { readonly detail?: unknown } | undefined)?.detail;
  return {
    id: node.id,
    key: node.key,
    parent: node.parent === undefined ? null : idOf(node.parent),
    type: node.type,
    initial: initial === undefined ? null : idOf(initial),
    tags: [...node.tags],
    description: node.description ?? (typeof detail === 'string' ? detail : null),
    invokes: node.invoke.map(({ id }) => id),
    entry: namesOf(node.entry),
    exit: namesOf(node.exit),
  };
}

function nodesUnder(node: AnyStateNode): AnyStateNode[] {
  return [node, ...Object.values(node.states).flatMap(nodesUnder)];
}

/** The empty text is the event type of a transition without an event in XState. */
const eventOf = (type: string): string | null => (type === '' ? null : type);
const idOf = ({ id }: { readonly id: string }): string => id;

const namesOf = (actions: readonly unknown[]): string[] => actions.flatMap((action) => nameOf(action) ?? []);

/** Returns the name of a guard or an action; null if it has none. */
function nameOf(named: unknown): string | null {
  if (typeof named === 'string') return named;
  if (typeof named === 'object' && named !== null && 'type' in named) return String(named.type);
  return null;
}
