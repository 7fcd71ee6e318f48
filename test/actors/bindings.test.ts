import { NEVER } from 'rxjs';
import { expect, test } from 'vitest';
import type { AnyStateMachine } from 'xstate';
import { dataplaneActor } from '#actors/dataplane.actor.js';
import { dnsProxyActor } from '#actors/dns-proxy.actor.js';
import { EventSwitch } from '#actors/event-switch.js';
import { nodeActor, supervisedPartActor } from '#actors/node.actor.js';
import { performanceModeActor } from '#actors/performance-mode.actor.js';
import { policyActor } from '#actors/policy.actor.js';
import { reloadActor } from '#actors/reload.actor.js';
import { ROUTES } from '#actors/router.js';
import { servicePlaneActor } from '#actors/service-plane.actor.js';
import { createBus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import { NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { PrepareWritePorts } from '#policies/write/prepare-write.js';
import { dataplaneChart } from '#statecharts/dataplane.chart.js';
import { dnsProxyChart } from '#statecharts/dns-proxy.chart.js';
import { followChart } from '#statecharts/follow.chart.js';
import { interfacesChart } from '#statecharts/interfaces.chart.js';
import { nodeChart, PARTS } from '#statecharts/node.chart.js';
import { pendingChangeChart } from '#statecharts/pending-change.chart.js';
import { performanceModeChart } from '#statecharts/performance-mode.chart.js';
import { policyChart } from '#statecharts/policy.chart.js';
import { reloadChart } from '#statecharts/reload.chart.js';
import { servicePlaneChart } from '#statecharts/service-plane.chart.js';
import { supervisedPartChart } from '#statecharts/supervised-part.chart.js';
import { swapChart } from '#statecharts/swap.chart.js';
import { writeChart } from '#statecharts/write.chart.js';
import { nodesOf } from '#test/statecharts/chart-walk.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { threadHere } from './running-system.js';

/** Names of XState actions that act outside the statechart. `unprovided` ignores all other actions. */
const EFFECTS = ['publish', 'use'];

/**
 * Returns the names of all invoked actors of `chart`, and of the actions in `EFFECTS`, for which `actor`
 * still has the placeholder implementation of the chart.
 */
function unprovided(chart: AnyStateMachine, actor: AnyStateMachine): string[] {
  const effectsOf = ({ implementations }: AnyStateMachine): Record<string, unknown> => ({
    ...implementations.actors,
    ...Object.fromEntries(Object.entries(implementations.actions).filter(([name]) => EFFECTS.includes(name))),
  });
  const bound = effectsOf(actor);
  return Object.entries(effectsOf(chart)).flatMap(([name, effect]) => (bound[name] === effect ? [name] : []));
}

test('each actor provides an implementation of every invoked actor of its statechart, and of every action named `publish` or `use`', async () => {
  const bus = createBus<Message>();
  const store = await openMemoryStore();
  const now = () => new Date();
  const policyWrites: PrepareWritePorts = {
    ...store,
    thread: threadHere(),
    membership: async () => NOTHING_LISTED,
    surroundings: { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false },
    enforced: false,
    now,
    adoptedGeneration: () => 0,
    chooseNodes: null,
    hasInterceptCa: () => false,
    repeats: false,
    assertionBudgetMs: 1_000,
  };
  const events = new EventSwitch(null);
  const node = nodeActor(bus, {
    policyWrites,
    dataplane: null,
    dns: null,
    servicePlane: null,
    cluster: null,
    settings: store.settings,
    health: { observe: () => async () => null },
    reload: null,
    supervised: {
      observer: null,
      policyFile: null,
      writeThread: null,
      explainThread: null,
      draftThread: null,
      kubernetesThread: null,
    },
    integrations: { names: NEVER, reflectors: NEVER },
    events,
    now,
  });
  expect(unprovided(nodeChart, node)).toEqual([]);
  const policy = policyActor(bus, policyWrites, null);
  expect(unprovided(policyChart, policy)).toEqual([]);
  expect(unprovided(writeChart, policy.implementations.actors.write as AnyStateMachine)).toEqual([]);
  expect(unprovided(followChart, policy.implementations.actors.follow as AnyStateMachine)).toEqual([]);
  const dataplane = dataplaneActor(bus, null);
  expect(unprovided(dataplaneChart, dataplane)).toEqual([]);
  expect(unprovided(swapChart, dataplane.implementations.actors.swap as AnyStateMachine)).toEqual([]);
  expect(unprovided(interfacesChart, dataplane.implementations.actors.interfaces as AnyStateMachine)).toEqual([]);
  expect(unprovided(dnsProxyChart, dnsProxyActor(bus, null, null))).toEqual([]);
  expect(unprovided(servicePlaneChart, servicePlaneActor(bus, null, null))).toEqual([]);
  expect(unprovided(reloadChart, reloadActor(bus, null))).toEqual([]);
  expect(unprovided(supervisedPartChart, supervisedPartActor(null))).toEqual([]);
  expect(
    unprovided(performanceModeChart, performanceModeActor(bus, { settings: store.settings, events, now })),
  ).toEqual([]);
  expect(unprovided(performanceModeChart, performanceModeChart)).toEqual([
    'read',
    'write',
    'follow',
    'watch',
    'publish',
  ]);
});

test('the router sends each bus message only to actors whose statechart has a transition for that message type', () => {
  const charts = {
    node: nodeChart,
    policy: policyChart,
    dataplane: dataplaneChart,
    dnsProxy: dnsProxyChart,
    servicePlane: servicePlaneChart,
    reload: reloadChart,
    pendingChange: pendingChangeChart,
    performanceMode: performanceModeChart,
  };
  const deaf = Object.entries(ROUTES).flatMap(([type, recipients]) =>
    recipients
      .filter((recipient) => recipient in charts)
      .filter((recipient) => {
        const nodes = nodesOf(charts[recipient as keyof typeof charts] as AnyStateMachine);
        return !nodes.some((node) => node.transitions.has(type));
      })
      .map((recipient) => `${type} → ${recipient}`),
  );
  expect(deaf).toEqual([]);
});

test('the node statechart has one region for the phase of the node and one region for each supervised part', () => {
  expect(Object.keys(nodeChart.states)).toEqual(['phase', ...PARTS]);
});
