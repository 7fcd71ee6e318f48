import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { formatAddress, parseIpv4Address } from '#addresses/ip-address.js';
import { firstLine, program } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { type Address, IPPROTO, type Packet } from '#contracts/policy/policy-model.js';
import { EventBatch, RECORD_BYTES } from '#dataplane/events/batch.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { EventRing } from '#dataplane/watch/event-ring.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { flushConntrack } from './conntrack.js';
import { datapathOptions } from './datapath-options.js';
import { ALLOWED, allowAll, denyAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

/** The port of the node at which it forwards to port ALLOWED of the client. */
const PUBLIC = 9_000;
/** The port to which the node translates the source port of each TCP and UDP flow. */
const SNAT_PORT = 20_000;
const SERVICE = '10.99.0.1';
const TABLE = `add table ip mine
add chain ip mine raw { type filter hook prerouting priority -300; }
add chain ip mine pre { type nat hook prerouting priority -100; }
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" meta l4proto { tcp, udp } snat to ${ADDRESSES.nodeWan}:${SNAT_PORT}
add rule ip mine post oifname "wan0" masquerade
add rule ip mine post iifname "lan0" oifname "lan0" masquerade
add rule ip mine pre meta l4proto { tcp, udp } ip daddr ${ADDRESSES.nodeWan} th dport ${PUBLIC} dnat to ${ADDRESSES.client}:${ALLOWED}
add rule ip mine pre ip daddr ${SERVICE} dnat to ${ADDRESSES.server}`;

const topology = topologyOfFile('shownnat');
let datapath: LocalDatapath;
beforeAll(async () => {
  const { client, server, node } = topology;
  await server.must('ip', 'route', 'del', 'default');
  await node.must('ip', 'route', 'add', '10.99.0.0/16', 'via', ADDRESSES.server);
  const serve = [program('tour-traffic'), 'serve', String(ALLOWED)];
  for (const host of [client, server]) await firstLine(host.start(process.execPath, serve));
});
afterEach(async () => {
  datapath.close();
  detach(topology.pinPath);
  await topology.node.run('nft', 'delete table ip mine');
  flushConntrack();
});

async function police(...rules: readonly string[]): Promise<void> {
  await topology.node.must('nft', rules.join('\n'));
  const translated = [{ address: parseIpv4Address('10.99.0.0') ?? 0, length: 16 }];
  const options = { interfaces: ['lan0', 'wan0'], forwarding: 'auto', translated } as const;
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, options));
  datapath.open();
  datapath.attach();
  datapath.stage(allowAll, 1);
  datapath.flip();
}

/** Sends one message from a port by TCP or UDP, and waits for the reply. */
async function ask(from: 'client' | 'server', how: string, to: string, port: number, ...more: readonly string[]) {
  const args = [program('tour-traffic'), how, to, String(port), '--timeout', '900', ...more];
  expect((await topology[from].run(process.execPath, ...args)).stdout).toContain('pong 1');
}

/** Returns the ends of each flow as `ADDRESS:PORT`: those of the two hosts, and those on the wire. */
async function flows(): Promise<object[]> {
  const { items } = await datapath.flows({ filter: anyFlow(), after: null, limit: 100 });
  const text = (address: Address, port: number): string => `${formatAddress(address)}:${port}`;
  return items.map(({ source, destination, ports, icmpId, translation: wire }) => ({
    source: text(source, ports?.[0] ?? icmpId ?? 0),
    destination: text(destination, ports?.[1] ?? icmpId ?? 0),
    wire: wire === null ? null : [wire.source, wire.destination].map(({ address, port }) => text(address, port)),
  }));
}

const real = (from: string, to: string) => ({ source: from, destination: to });

describe('the flow list', () => {
  test.each(['connect', 'datagram'])('the flow list shows the source after SNAT (client sends by: %s)', async (how) => {
    await police(TABLE);
    await ask('client', how, ADDRESSES.server, ALLOWED, '--source-port', '41000');
    const server = `${ADDRESSES.server}:${ALLOWED}`;
    expect(await flows()).toEqual([
      { ...real(`${ADDRESSES.client}:41000`, server), wire: [`${ADDRESSES.nodeWan}:${SNAT_PORT}`, server] },
    ]);
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'the flow list shows the identifier of a masqueraded ping',
    async () => {
      await police(TABLE);
      await topology.client.must('ping', '-n', '-c', '1', '-W', '1', '-e', '77', ADDRESSES.server);
      expect(await flows()).toEqual([
        {
          ...real(`${ADDRESSES.client}:77`, `${ADDRESSES.server}:77`),
          wire: [`${ADDRESSES.nodeWan}:77`, `${ADDRESSES.server}:77`],
        },
      ]);
    },
  );

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'the flow list shows the destination before DNAT',
    async () => {
      await police(TABLE);
      const server = `${ADDRESSES.server}:42000`;
      await ask('server', 'datagram', ADDRESSES.nodeWan, PUBLIC, '--source-port', '42000');
      expect(await flows()).toEqual([
        { ...real(server, `${ADDRESSES.client}:${ALLOWED}`), wire: [server, `${ADDRESSES.nodeWan}:${PUBLIC}`] },
      ]);
    },
  );

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'the flow list shows the SNAT and the DNAT of one flow, in each conntrack zone',
    async () => {
      await police(TABLE, 'add rule ip mine raw ct zone set 7');
      const from = ['--source', ADDRESSES.clientOther, '--source-port', '43000'];
      await ask('client', 'datagram', ADDRESSES.nodeWan, PUBLIC, ...from);
      expect(await flows()).toEqual([
        {
          ...real(`${ADDRESSES.clientOther}:43000`, `${ADDRESSES.client}:${ALLOWED}`),
          wire: [expect.stringMatching(/^10\.77\.[13]\.1:43000$/), `${ADDRESSES.nodeWan}:${PUBLIC}`],
        },
      ]);
    },
  );

  test('the flow list shows no translation of a flow that the node does not translate', async () => {
    await topology.server.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.nodeWan);
    const other = 'add rule ip mine post ip saddr 10.1.0.0/16 masquerade';
    await police('add table ip mine', 'add chain ip mine post { type nat hook postrouting priority 100; }', other);
    await ask('client', 'datagram', ADDRESSES.server, ALLOWED, '--source-port', '44000');
    await topology.server.must('ip', 'route', 'del', 'default');
    const ends = real(`${ADDRESSES.client}:44000`, `${ADDRESSES.server}:${ALLOWED}`);
    expect(await flows()).toEqual([{ ...ends, wire: null }]);
  });
});

describe('events of translated flows', () => {
  const observed = async (during: () => Promise<void>) => {
    datapath.setEventsWanted(ALL_EVENTS);
    await during();
    const { events, ringBytes } = datapath.kernelWatchMaps();
    const ring = new EventRing(events, ringBytes);
    try {
      const records = ring.take(1_000);
      const count = records.length / RECORD_BYTES;
      const batch = new EventBatch({ records: records.buffer, count, lost: 0, monotonicNs: 0, unixMs: 0 });
      return [...batch]
        .filter(({ protocol, source }) => protocol !== IPPROTO.icmp && source !== parseIpv4Address('0.0.0.0'))
        .map(({ type, destination, destinationPort, wireDestination: wire, packets }) => ({
          type,
          destination: `${formatAddress(destination)}:${destinationPort}`,
          wire: wire && `${formatAddress(wire.address)}:${wire.port}`,
          packets,
        }));
    } finally {
      ring.unmap();
    }
  };

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'the events of an opened flow and of a denied packet have the destination before DNAT',
    async () => {
      await police(TABLE);
      const opened = await observed(() => ask('server', 'datagram', ADDRESSES.nodeWan, PUBLIC));
      const ends = { destination: `${ADDRESSES.client}:${ALLOWED}`, wire: `${ADDRESSES.nodeWan}:${PUBLIC}` };
      expect(opened).toEqual([{ type: 'flow_opened', ...ends, packets: [1, 0] }]);
      datapath.stage(denyAll, 2);
      datapath.flip();
      flushConntrack();
      const send = [program('tour-traffic'), 'datagram', ADDRESSES.nodeWan, String(PUBLIC), '--timeout', '300'];
      const denied = await observed(async () => void (await topology.server.run(process.execPath, ...send)));
      expect(denied).toContainEqual({ type: 'denied', ...ends, packets: 1 });
    },
  );

  test('the event of an opened flow has no destination before DNAT if the node translates only the source', async () => {
    await police(TABLE);
    const opened = await observed(() => ask('client', 'datagram', ADDRESSES.server, ALLOWED));
    expect(opened).toEqual([
      { type: 'flow_opened', destination: `${ADDRESSES.server}:${ALLOWED}`, wire: null, packets: [1, 0] },
    ]);
  });
});

describe('the translation of a destination', () => {
  const udp = (source: string, sourcePort: number, destination: string, destinationPort: number): Packet<number> => ({
    ...{
      source: parseIpv4Address(source) ?? 0,
      destination: parseIpv4Address(destination) ?? 0,
      sourcePort,
      destinationPort,
    },
    ...{ protocol: IPPROTO.udp, icmpType: 0, icmpCode: 0 },
  });
  const end = (address: string, port: number) => ({ address: parseIpv4Address(address), port });

  test('`destinationTranslation` returns null without NAT rules', async () => {
    await police('add table ip mine');
    expect(datapath.destinationTranslation(udp(ADDRESSES.client, 1, ADDRESSES.server, ALLOWED))).toBeNull();
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    '`destinationTranslation` returns the server that conntrack knows for the packet, in both directions',
    async () => {
      await police(TABLE);
      await ask('server', 'datagram', ADDRESSES.nodeWan, PUBLIC, '--source-port', '45000');
      await ask('client', 'datagram', SERVICE, ALLOWED, '--source-port', '46000');
      expect(
        [
          udp(ADDRESSES.server, 45_000, ADDRESSES.nodeWan, PUBLIC),
          udp(ADDRESSES.client, 46_000, SERVICE, ALLOWED),
          udp(ADDRESSES.server, ALLOWED, ADDRESSES.nodeWan, SNAT_PORT),
          udp(ADDRESSES.server, 45_001, ADDRESSES.nodeWan, PUBLIC),
          udp(ADDRESSES.server, 0, ADDRESSES.nodeWan, PUBLIC),
        ].map((packet) => datapath.destinationTranslation(packet)),
      ).toEqual([
        { isService: false, real: end(ADDRESSES.client, ALLOWED) },
        { isService: true, real: end(ADDRESSES.server, ALLOWED) },
        { isService: false, real: end(ADDRESSES.client, 46_000) },
        { isService: false, real: null },
        { isService: false, real: null },
      ]);
    },
  );
});
