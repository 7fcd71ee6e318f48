import type { AnyEventObject, AnyMachineSnapshot } from 'xstate';
import type { InspectedSnapshot, Inspection } from '#bus/statecharts.js';

/**
 * The fields of a context that may be shown. Contexts hold programs and policy texts, so every field that is
 * not listed here is omitted.
 */
export const SHOWN_CONTEXT: Readonly<Record<string, readonly string[]>> = {
  node: ['configured', 'activationTimeoutMs', 'needs', 'restarts', 'ended', 'trouble'],
  policy: [
    'enforced',
    'activationTimeoutMs',
    'epoch',
    'everActivated',
    'draining',
    'dataplaneLost',
    'attempts',
    'trouble',
  ],
  write: ['enforced', 'lines', 'proof'],
  dataplane: ['configured', 'needed', 'inForce', 'adopted', 'attempts', 'trouble', 'notices'],
  interfaces: ['configured', 'missing', 'faults', 'renamed', 'trouble', 'notices'],
  swap: ['lines', 'isSuperseded'],
  dnsProxy: ['configured', 'needed', 'enforced', 'isEnforcing', 'hasGrants', 'upstreams', 'attempts', 'trouble'],
  servicePlane: [
    'configured',
    'needed',
    'enforced',
    'isEnforcing',
    'hasGrants',
    'hasCa',
    'caFault',
    'upstreamCaFault',
    'joinFault',
    'attempts',
    'trouble',
  ],
  cluster: ['configured'],
  performanceMode: ['mode', 'attempts', 'trouble'],
  supervisedPart: ['beginsAtOnce', 'failure', 'attempts'],
};

/** The same for the fields of events besides their type. */
const SHOWN_OF_EVENTS = ['generation', 'epoch', 'alive', 'dead'] as const;

export function shownEvent(event: AnyEventObject): Extract<Inspection, { type: '@xstate.event' }>['event'] {
  const shown = SHOWN_OF_EVENTS.filter((member) => member in event).map((member) => [member, event[member] as unknown]);
  return { ...(Object.fromEntries(shown) as Record<string, unknown>), type: event.type };
}

/** `chart` is the id of a machine. */
export function shownSnapshot(chart: string, snapshot: AnyMachineSnapshot): InspectedSnapshot {
  const context = snapshot.context as Readonly<Record<string, unknown>>;
  const names = (SHOWN_CONTEXT[chart] ?? []).filter((name) => name in context);
  const children = Object.entries(snapshot.children as Readonly<Record<string, { readonly id: string } | undefined>>);
  return {
    status: snapshot.status,
    value: snapshot.value,
    context: Object.fromEntries(names.map((name) => [name, context[name]])),
    tags: [...snapshot.tags].sort(),
    children: Object.fromEntries(
      children.flatMap(([name, child]) =>
        child === undefined ? [] : [[name, { xstate$$type: 1 as const, id: child.id }]],
      ),
    ),
    historyValue: {},
  };
}

/** The configuration of a machine as JSON; functions are represented by their names. */
export function definitionOf(config: object): string {
  const named = (_: string, value: unknown): unknown => (typeof value === 'function' ? { type: value.name } : value);
  return JSON.stringify(config, named);
}
