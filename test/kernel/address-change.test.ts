import Fastify from 'fastify';
import { NEVER } from 'rxjs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type AnyMachineSnapshot, type AnyStateMachine, createActor, SimulatedClock, waitFor } from 'xstate';
import { dnsProxyActor } from '#actors/dns-proxy.actor.js';
import { servicePlaneActor } from '#actors/service-plane.actor.js';
import { createBus } from '#bus/bus.js';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import { Upstream } from '#dns/upstream/dns-upstream.js';
import { libc } from '#libc/libc.js';
import type { ServicePlane } from '#service-plane/service-plane.js';
import { listenOnceThere } from '#sockets/routes/address-changes.js';
import { RouteNotifications } from '#sockets/routes/route-notifications.js';
import { openListener } from '#sockets/socket-options.js';
import { lookUp, query, TcpClient } from '#test/dns/client.js';
import { alwaysAt, FakeUpstream, type ReceivedQuery } from '#test/dns/fake-upstream.js';
import { type DnsProxyRig, startProxy } from '#test/dns/proxy.js';
import { settled } from '#test/dns/settled.js';
import { eventually } from '#test/eventually.js';
import { ProgressClock } from '#test/progress-clock.js';
import { enterNamespace } from './namespace.js';

const UPSTREAM = { host: '10.88.0.53', port: 53 };
const OTHER_UPSTREAM = { host: '10.88.1.53', port: 53 };
const LISTEN = { host: '10.77.1.1', port: 53 };
const ADDRESS = '1.2.3.4';
const TC = 0x0200;
const tooLong = (received: ReceivedQuery): void => {
  if (received.stream === null) received.answer({ flags: TC });
  else alwaysAt(ADDRESS)(received);
};
const at = (name: string): readonly string[] => ['NOERROR', `${name} A ${ADDRESS}`];

let topology: Topology;
let leave = (): void => {};
let names = 0;

/** Runs `ip` commands in the network namespace of the node. */
async function onNode(...commands: readonly string[]): Promise<void> {
  for (const command of commands) await topology.node.must('ip', ...command.split(' '));
}
const onServer = (command: string): Promise<string> => topology.server.must('ip', ...command.split(' '));

/** Starts a DNS resolver in the network namespace of the server. */
async function upstreamAt(to: typeof UPSTREAM, onQuery: (received: ReceivedQuery) => void): Promise<FakeUpstream> {
  const back = enterNamespace(topology.server.name);
  try {
    return await FakeUpstream.start(onQuery, to);
  } finally {
    back();
  }
}

/** Returns a new DNS name, so that the DNS proxy cannot answer from its cache. */
function fresh(): string {
  return `n${++names}.example.com`;
}

async function answers(rig: DnsProxyRig): Promise<void> {
  const name = fresh();
  expect(await lookUp(rig.at, name)).toEqual(at(name));
}

/**
 * The node has two links to the server. The addresses of both resolvers are on the server's loopback
 * interface.
 */
beforeEach(async () => {
  topology = await createTopology('moved');
  await onNode(
    `link add wan1 type veth peer name eth1 netns ${topology.server.name}`,
    'addr add 10.77.4.1/24 dev wan1',
    'link set wan1 up',
    'route add 10.88.0.0/16 via 10.77.2.2',
  );
  for (const command of [
    'addr add 10.77.4.2/24 dev eth1',
    'link set eth1 up',
    `addr add ${UPSTREAM.host}/32 dev lo`,
    `addr add ${OTHER_UPSTREAM.host}/32 dev lo`,
  ])
    await onServer(command);
});
afterEach(async () => {
  leave();
  leave = () => {};
  await topology.remove();
});

/**
 * Changes of addresses and routes on the node, each of which changes or invalidates the source address for
 * queries to the resolver.
 */
const CHANGES: readonly (readonly [string, () => Promise<void>])[] = [
  [
    'another address of the same network replaced the source address',
    () =>
      onNode(
        'addr del 10.77.2.1/24 dev wan0',
        'addr add 10.77.2.9/24 dev wan0',
        'route add 10.88.0.0/16 via 10.77.2.2',
      ),
  ],
  [
    'the source address was removed after another address was added',
    () =>
      onNode(
        'addr add 10.77.2.9/32 dev wan0',
        'route add 10.77.2.2/32 dev wan0 src 10.77.2.9',
        'route replace 10.88.0.0/16 via 10.77.2.2 src 10.77.2.9',
        'addr del 10.77.2.1/24 dev wan0',
      ),
  ],
  [
    'the source address was removed while the link was down',
    () =>
      onNode(
        'link set wan0 down',
        'addr flush dev wan0',
        'addr add 10.77.2.77/24 dev wan0',
        'link set wan0 up',
        'route add 10.88.0.0/16 via 10.77.2.2',
      ),
  ],
  [
    'an address of another network replaced the source address on the same link',
    async () => {
      await onServer('addr add 10.77.5.2/24 dev eth0');
      await onNode(
        'addr del 10.77.2.1/24 dev wan0',
        'addr add 10.77.5.1/24 dev wan0',
        'route add 10.88.0.0/16 via 10.77.5.2',
      );
    },
  ],
  [
    'the route moved to another link, where the server does not reply to the old source address',
    async () => {
      await onNode('route replace 10.88.0.0/16 via 10.77.4.2');
      await onServer('link set eth0 down');
    },
  ],
  [
    'a more specific route with another source address was added',
    async () => {
      await onServer('route add blackhole 10.77.2.1/32');
      await onNode('route add 10.88.0.53/32 via 10.77.4.2');
    },
  ],
];

describe('DNS proxy after a change of its source address towards the resolver', () => {
  test.each(CHANGES)(
    'the DNS proxy gets answers from the resolver over UDP again after a change of its source address: %s',
    async (_, change) => {
      await upstreamAt(UPSTREAM, alwaysAt(ADDRESS));
      leave = enterNamespace(topology.node.name);
      const rig = await startProxy([{ at: UPSTREAM }]);
      await answers(rig);
      await change();
      for (let each = 0; each < 40; each++) await answers(rig);
    },
  );

  test.each(CHANGES)(
    'the DNS proxy gets answers from the resolver over TCP again after a change of its source address: %s',
    async (_, change) => {
      const upstream = await upstreamAt(UPSTREAM, tooLong);
      leave = enterNamespace(topology.node.name);
      const rig = await startProxy([{ at: UPSTREAM }]);
      await answers(rig);
      await answers(rig);
      expect(upstream.connections.size).toBe(1);
      await change();
      for (let each = 0; each < 5; each++) await answers(rig);
    },
  );

  test('the DNS proxy answers SERVFAIL while its source address is missing, and gets answers again when the address is back', async () => {
    await upstreamAt(UPSTREAM, alwaysAt(ADDRESS));
    leave = enterNamespace(topology.node.name);
    const rig = await startProxy([{ at: UPSTREAM }]);
    await answers(rig);
    await onNode('addr del 10.77.2.1/24 dev wan0');
    for (let each = 0; each < 4; each++) expect(await lookUp(rig.at, fresh())).toEqual(['SERVFAIL']);
    await settled(() => rig.alive.at(-1), []);
    await onNode('addr add 10.77.2.1/24 dev wan0', 'route add 10.88.0.0/16 via 10.77.2.2');
    await eventually(() => answers(rig), { interval: 20 });
  });
});

test('the DNS proxy updates its source address for a resolver after a failed send, even without a route notification', async () => {
  await upstreamAt(UPSTREAM, alwaysAt(ADDRESS));
  leave = enterNamespace(topology.node.name);
  const silent = vi.spyOn(RouteNotifications.prototype, 'drain').mockReturnValue(false);
  const compared = vi.spyOn(Upstream.prototype, 'renew');
  try {
    const rig = await startProxy([{ at: UPSTREAM }]);
    await answers(rig);
    await CHANGES[0]?.[1]();
    for (let each = 0; each < 40; each++) await answers(rig);
    expect(silent).toHaveBeenCalled();
    expect(compared).toHaveBeenCalled();
  } finally {
    silent.mockRestore();
    compared.mockRestore();
  }
});

test('an HTTP server without its listen address starts to listen within one second after the node gets the address', async () => {
  leave = enterNamespace(topology.node.name);
  const api = Fastify();
  api.get('/', () => 'here');
  const absent: string[] = [];
  const listening = listenOnceThere(
    () => api.listen({ host: '10.77.6.1', port: 0 }),
    (failure) => absent.push(failure.message),
    AbortSignal.timeout(20_000),
  );
  try {
    await settled(() => absent.length, 1);
    await onNode('addr add 10.77.7.1/24 dev lan0');
    await onNode('addr add 10.77.6.1/24 dev lan0');
    const clock = new ProgressClock();
    await listening;
    expect(clock.ms()).toBeLessThan(1_000);
    expect(absent).toHaveLength(1);
    expect(await (await fetch(api.listeningOrigin)).text()).toBe('here');
  } finally {
    await api.close();
  }
});

describe('an actor that could not bind its listen address', () => {
  const PARTS: readonly (readonly [string, (part: DnsProxy & ServicePlane) => AnyStateMachine])[] = [
    ['the DNS proxy', (part) => dnsProxyActor(createBus(), part, null)],
    [
      'the service plane',
      (part) => servicePlaneActor(createBus(), { plane: part, interceptCa: { changed: NEVER } }, null),
    ],
  ];
  const OF_FAMILIES = [
    ['IPv4', 0x0a4d_0601, '10.77.6.1/24'],
    ['IPv6', 0xfd77_0006_0000_0000_0000_0000_0000_0001n, 'fd77:6::1/64'],
  ] as const;
  test.each(
    PARTS.flatMap(([part, actorOf]) => OF_FAMILIES.map(([family, ...of]) => [part, family, actorOf, ...of] as const)),
  )(
    'a listener whose address was missing is bound as soon as the address appears, before the back-off ends (part of the node: %s, address of %s)',
    async (_, _family, actorOf, address, text) => {
      leave = enterNamespace(topology.node.name);
      const part = {
        open: async () => void libc.close(openListener({ address, port: 53 }, { mark: 0 })),
        watch: () => () => {},
        use: () => {},
      } as unknown as DnsProxy & ServicePlane;
      const input = { configured: true, needed: true, enforced: false, lookups: null, inspection: null };
      // With a SimulatedClock the back-off never ends, so only a notification of the new address can lead to
      // another bind.
      const actor = createActor(actorOf(part), { clock: new SimulatedClock(), input });
      const isIn = (state: string) => (snapshot: AnyMachineSnapshot) => JSON.stringify(snapshot.value).includes(state);
      actor.start();
      try {
        await waitFor(actor, isIn('backing_off'), { timeout: 5_000 });
        // The kernel accepts a bind to an IPv6 address after duplicate address detection.
        await onNode('addr add 10.77.7.1/24 dev lan0', `addr add ${text} dev lan0`);
        await waitFor(actor, isIn('serving'), { timeout: 5_000 });
      } finally {
        actor.stop();
      }
    },
  );
});

test('`listenOnceThere` stops waiting for a missing listen address when its AbortSignal aborts', async () => {
  leave = enterNamespace(topology.node.name);
  const ended = new AbortController();
  const api = Fastify();
  const listening = listenOnceThere(
    () => api.listen({ host: '10.77.6.1', port: 0 }),
    () => ended.abort(),
    ended.signal,
  );
  await listening;
  expect(api.server.listening).toBe(false);
  await api.close();
});

test('the DNS proxy does not query a resolver without a route, and queries that resolver again once it has a route', async () => {
  await upstreamAt(UPSTREAM, alwaysAt(ADDRESS));
  leave = enterNamespace(topology.node.name);
  await onNode('route del 10.88.0.0/16', 'route add 10.88.0.53/32 via 10.77.2.2');
  const rig = await startProxy([{ at: OTHER_UPSTREAM }, { at: UPSTREAM }]);
  for (let each = 0; each < 5; each++) await answers(rig);
  await settled(() => rig.alive.at(-1), ['10.88.0.53:53']);
  leave();
  const other = await upstreamAt(OTHER_UPSTREAM, alwaysAt(ADDRESS));
  leave = enterNamespace(topology.node.name);
  await onNode('route add 10.88.1.53/32 via 10.77.2.2');
  await settled(() => rig.alive.at(-1), ['10.88.1.53:53', '10.88.0.53:53']);
  await answers(rig);
  expect(other.received.some(({ question }) => question.name.endsWith('example.com'))).toBe(true);
});

test('the DNS proxy answers queries over UDP and TCP on a listen address that was removed and added again', async () => {
  await upstreamAt(UPSTREAM, alwaysAt(ADDRESS));
  leave = enterNamespace(topology.node.name);
  const rig = await startProxy([{ at: UPSTREAM }], { listen: [LISTEN] });
  await answers(rig);
  await onNode(
    'addr del 10.77.1.1/24 dev lan0',
    'link set lan0 down',
    'link set lan0 up',
    'addr add 10.77.1.1/24 dev lan0',
  );
  await answers(rig);
  const client = await TcpClient.to(LISTEN, LISTEN.host);
  const name = fresh();
  client.send(query(name));
  await settled(() => client.responses, [at(name)]);
  client.close();
});
