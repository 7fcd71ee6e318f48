import type { AnyEventObject, AnyMachineSnapshot } from 'xstate';
import type { InspectedSnapshot, Inspection } from '#bus/statecharts.js';

/**
 * For each statechart, the context fields that the debug API may show. All other fields are omitted, because
 * contexts contain programs and policy texts.
 */
export const SHOWN_CONTEXT: Readonly<Record<string, readonly string[]>> = {
  node: ['configured', 'activationTimeoutMs', 'needs', 'restarts', 'ended', 'trouble'],
  policy: [
    'enforced',
    'activationTimeoutMs',
    'shared',
    'epoch',
    'everActivated',
    'committed',
    'unfollowed',
    'hasWriteLock',
    'draining',
    'dataplaneLost',
    'attempts',
    'isStale',
    'refreshAttempts',
    'trouble',
    'notices',
  ],
  write: ['enforced', 'shared', 'lines', 'proof', 'rehearsed', 'revision'],
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
    'spliceFault',
    'attempts',
    'trouble',
  ],
  follow: ['enforced', 'committed', 'withdrawn'],
  cluster: ['configured', 'generation', 'leader', 'isLeader', 'committed', 'apart', 'trouble'],
  integrations: ['names'],
  kubernetes: ['name', 'reflectors', 'since', 'staleSince', 'lastError'],
  pendingChange: ['shared', 'change', 'decides'],
  performanceMode: ['mode', 'attempts', 'trouble'],
  reload: ['plan', 'changed', 'unrestored'],
  supervisedPart: ['startsAtOnce', 'failure', 'attempts'],
};

/**
 * The event fields that the debug API may show, besides `type`. All other fields are omitted, because events
 * contain programs and policy texts.
 */
const SHOWN_OF_EVENTS = ['generation', 'epoch', 'alive', 'dead'] as const;

export function shownEvent(event: AnyEventObject): Extract<Inspection, { type: '@xstate.event' }>['event'] {
  const shown = SHOWN_OF_EVENTS.filter((member) => member in event).map((member) => [member, event[member] as unknown]);
  return { ...(Object.fromEntries(shown) as Record<string, unknown>), type: event.type };
}

/**
 * Returns a snapshot with only the fields that the debug API may show. `chart` is the id of the statechart.
 */
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

/**
 * Returns the configuration of a statechart as JSON text. Each function is replaced by an object with its
 * name.
 */
export function definitionOf(config: object): string {
  const named = (_: string, value: unknown): unknown => (typeof value === 'function' ? { type: value.name } : value);
  return JSON.stringify(config, named);
}
