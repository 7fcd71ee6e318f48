import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { ROUTE_LINES, ROUTES, ROUTES_BYTES } from '#dataplane/routes/route-lines.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { back, tcp, udp } from '#test/dataplane/conversation.js';
import { DROPPED, type Loaded, loadForTest, PASSED, SKB } from '#test/dataplane/loaded.js';
import { eventually } from '#test/eventually.js';
import { Random } from '#test/seed.js';
import { findOutMtu } from './path-mtu.js';
import { allowAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const at = (text: string): number => parseIpv4Address(text) ?? Number.NaN;
const CLIENT = at(ADDRESSES.client);
const SERVER = at(ADDRESSES.server);
const MINUTE_MS = 60_000;

const topology = topologyOfFile('copied');
let asking: Loaded;
let copying: Loaded;
let held: MappedMemory;
let nowMs = 0;
const interfaces: Record<string, number> = {};

beforeAll(async () => {
  await ip('link add ext0 type veth peer name ext1');
  await ip('addr add 10.77.9.1/24 dev ext0');
  for (const name of ['ext0', 'ext1']) await ip(`link set ${name} up`);
  for (const { name, ifindex } of listInterfaces()) interfaces[name] = ifindex;
  const options = { classifyAll: false, reversePath: 'strict' } as const;
  asking = loadForTest(options);
  copying = loadForTest({ ...options, copiesRoutes: true });
  for (const kernel of [asking, copying]) kernel.activate(allowAll);
  held = new MappedMemory('routes', copying.object.mapFd('routes'), ROUTES_BYTES);
});
afterAll(() => {
  held.unmap();
  for (const kernel of [asking, copying]) kernel.close();
});
afterEach(async () => {
  const undone = [
    'route flush proto boot',
    'route flush table local proto boot',
    'rule del pref 100',
    'link set ext1 up',
    'link set ext0 up',
    'addr del 10.77.91.1/24 dev ext0',
  ];
  for (const command of [...undone, 'nexthop flush']) await topology.node.run('ip', ...command.split(' '));
  await forward('lan0', 1);
});

const ip = (command: string): Promise<string> => topology.node.must('ip', ...command.split(' '));
const forward = (device: string, on: 0 | 1): Promise<string> =>
  topology.node.must('sh', '-c', `echo ${on} > /proc/sys/net/ipv4/conf/${device}/forwarding`);

/** Makes the datapath copy the present routes of the kernel. */
function copy(): void {
  for (let looks = 0; looks < 2; looks++) {
    nowMs += MINUTE_MS;
    copying.routes.look(nowMs);
  }
}
const isHeld = (): boolean => held.words[ROUTES.hold] === 1;

const random = new Random(77);
const WATCHED = [
  ...['0.0.0.0', '0.1.2.3', '127.0.0.1', '8.8.8.8', '192.0.2.1', '224.0.0.1', '240.0.0.1', '255.255.255.255'],
  ...[
    '10.77.1.1',
    '10.77.1.255',
    '10.77.1.0',
    '10.77.1.77',
    '10.77.2.1',
    '10.77.2.99',
    '10.77.3.2',
    '10.77.9.1',
    '10.77.9.9',
  ],
].map(at);
const ADDRESSES_TRIED = [
  ...WATCHED,
  // For each /16 network of the routes below: two addresses in the network, and some addresses outside.
  ...Array.from({ length: 24 }, (_, index) => at(`10.${64 + index}.1.${random.below(255)}`)),
  ...Array.from({ length: 24 }, (_, index) => at(`10.${64 + index}.${random.between(2, 255)}.7`)),
  ...Array.from({ length: 50 }, () => random.word()),
];

/**
 * Returns the verdicts of `kernel` for each test address: as a source on lan0, as a source on wan0, as a
 * destination, and as the sender of replies.
 */
function verdicts(kernel: Loaded): string[] {
  kernel.forget();
  const see = (by: string, source: number, destination: number): string => {
    kernel.context.setUint32(SKB.ifindex, interfaces[by] ?? 0, true);
    const { returned, mark } = kernel.runPacket({ ...udp, source, destination });
    return `${returned}/${mark}`;
  };
  return ADDRESSES_TRIED.map((address) => {
    const asked = { ...udp, source: CLIENT, destination: address };
    const answer = back(asked);
    const seen = [see('lan0', address, SERVER), see('wan0', address, CLIENT), see('lan0', CLIENT, address)];
    kernel.context.setUint32(SKB.ifindex, interfaces.wan0 ?? 0, true);
    return [...seen, kernel.runPacket(answer).returned, kernel.counted().drop_spoofed_source].join(' ');
  });
}

describe('a datapath with copied routes', () => {
  test.each<{ routes: string; commands: readonly string[]; copied?: false }>([
    { routes: 'the routes of the node', commands: [] },
    {
      routes: 'a default route and more specific routes',
      commands: [
        'route add default via 10.77.2.2',
        'route add 10.64.0.0/10 via 10.77.1.2',
        'route add 10.65.0.0/16 via 10.77.2.2',
        'route add blackhole 10.66.0.0/16',
        'route add 10.66.1.0/24 via 10.77.1.2',
        'route add unreachable 10.67.0.0/16',
        'route add prohibit 10.68.0.0/16',
        'route add throw 10.69.0.0/16',
      ],
    },
    {
      routes: 'a route with several nexthops',
      commands: ['route add 10.70.0.0/16 nexthop via 10.77.1.2 nexthop via 10.77.2.2'],
    },
    {
      routes: 'two routes with different metrics',
      commands: ['route add 10.71.0.0/16 via 10.77.1.2 metric 5', 'route add 10.71.0.0/16 via 10.77.2.2 metric 9'],
    },
    {
      routes: 'a range of addresses that are local to the node',
      commands: ['route add local 10.72.0.0/16 dev lo', 'route add 10.72.1.0/24 via 10.77.1.2'],
    },
    {
      routes: 'a nexthop object',
      commands: ['nexthop add id 7 via 10.77.1.2 dev lan0', 'route add 10.73.0.0/16 nhid 7'],
    },
    { routes: 'an IPv6 gateway', commands: ['route add 10.74.0.0/16 via inet6 fe80::1 dev wan0'] },
    {
      routes: 'a link without carrier',
      commands: ['route add 10.75.0.0/16 via 10.77.9.2', 'link set ext1 down'],
    },
    {
      routes: 'more routes than one cache line of keys',
      commands: Array.from({ length: 240 }, (_, index) => {
        const [block, step] = [64 + (index % 13), Math.floor(index / 13)];
        return `route add 10.${block}.${1 + 2 * step}.0/24 via ${index % 2 === 0 ? '10.77.1.2' : '10.77.2.2'}`;
      }),
    },
    {
      routes: 'a route with a type of service',
      commands: ['route add 10.78.0.0/16 tos 0x10 via 10.77.1.2'],
      copied: false,
    },
  ])(
    'a datapath with copied routes gives the verdicts of kernel route lookups, before and after the routes are copied again: $routes',
    async ({ commands, copied = true }) => {
      copy();
      for (const command of commands) await ip(command);
      expect(verdicts(copying)).toEqual(verdicts(asking));
      copy();
      expect(isHeld()).toBe(copied);
      expect(verdicts(copying)).toEqual(verdicts(asking));
    },
  );
});

test.each(['off', 'loose'] as const)(
  'with reverse_path: %s, the routes that are copied into the datapath lead to the same verdicts as route lookups in the kernel',
  async (reversePath) => {
    await ip('route add default via 10.77.2.2');
    await ip('route add 10.64.0.0/10 via 10.77.1.2');
    const [other, copier] = [false, true].map((copiesRoutes) =>
      loadForTest({ classifyAll: false, reversePath, copiesRoutes }),
    ) as [Loaded, Loaded];
    try {
      for (const kernel of [other, copier]) kernel.activate(allowAll);
      for (const look of [1, 2]) copier.routes.look(look * MINUTE_MS);
      expect(copier.routes.isInForce).toBe(true);
      expect(verdicts(copier)).toEqual(verdicts(other));
    } finally {
      for (const kernel of [other, copier]) kernel.close();
    }
  },
);

describe('the copied routes', () => {
  const isDropped = (): boolean => {
    copying.forget();
    copying.context.setUint32(SKB.ifindex, interfaces.lan0 ?? 0, true);
    const { returned } = copying.runPacket({ ...udp, source: CLIENT, destination: SERVER });
    expect([PASSED, DROPPED]).toContain(returned);
    return returned === DROPPED;
  };
  /**
   * Changes the copied routes so that they lead to the interface of the server for every address. The
   * datapath then drops packets from the client as forged if, and only if, it uses the copied routes.
   */
  const falsify = (): void => {
    for (let line = 18; line < ROUTE_LINES; line++) {
      held.words.fill(interfaces.wan0 ?? 0, line * LINE_WORDS + LINE_WORDS / 2, (line + 1) * LINE_WORDS);
    }
    expect(isDropped()).toBe(true);
  };
  /**
   * Copies the routes and falsifies the copy. Tries again after a failure, because the kernel may still
   * process the change of a link.
   */
  const copyAndFalsify = (): Promise<void> =>
    eventually(() => {
      copy();
      expect(isHeld()).toBe(true);
      falsify();
    });

  test('the routes copied into the datapath are in use after the second check of the routes, and two further checks correct wrong copies', async () => {
    await copyAndFalsify();
    copy();
    expect(isDropped()).toBe(false);
  });

  test.each([
    ['a new route', 'route add 10.90.0.0/16 via 10.77.2.2'],
    ['a new address', 'addr add 10.77.91.1/24 dev ext0'],
    ['the loss of a link', 'link set ext0 down'],
  ])(
    'the routes copied into the datapath are not used after a change of the network (%s), even before the next check',
    async (_, command) => {
      await copyAndFalsify();
      expect(copying.routes.isInForce).toBe(true);
      await ip(command);
      expect(isDropped()).toBe(false);
      expect(copying.routes.isInForce).toBe(false);
    },
  );

  test.each(['udp', 'tcp'] as const)(
    'the routes copied into the datapath determine the interface towards the destination of a new flow of the protocol %s',
    (protocol) => {
      copy();
      expect(isHeld()).toBe(true);
      const opener = { ...(protocol === 'udp' ? udp : tcp), source: CLIENT, destination: SERVER };
      for (const kernel of [copying, asking]) {
        kernel.forget();
        kernel.context.setUint32(SKB.ifindex, interfaces.lan0 ?? 0, true);
        expect(kernel.runPacket(opener).returned).toBe(PASSED);
        const [flow] = kernel.flowsIn('half_open');
        expect(flow?.ifindex).toEqual([interfaces.lan0, interfaces.wan0]);
      }
    },
  );

  test('the routes copied into the datapath tell whether a destination is the node itself, or another host to which the node forwards', async () => {
    const isForNode = (): boolean => {
      copying.forget();
      copying.context.setUint32(SKB.ifindex, interfaces.lan0 ?? 0, true);
      return copying.runPacket({ ...udp, source: CLIENT, destination: at(ADDRESSES.nodeLan) }).returned === PASSED;
    };
    copy();
    expect(isForNode()).toBe(true);
    await copyAndFalsify();
    expect(isForNode()).toBe(false);
  });

  // The kernel lists cached MTUs among the routes, and may omit other routes with the same first address from
  // that list. The copied routes must contain these routes anyway.
  test('the routes copied into the datapath are complete even if the kernel has learned the MTU of many destinations', async () => {
    for (const [prefix, gateway] of [
      ['default', '10.77.1.3'],
      ['20.0.0.0/16', '10.77.1.2'],
      ['20.0.0.0/8', '10.77.2.2'],
    ]) {
      await ip(`route add ${prefix} via ${gateway}`);
    }
    const found = Array.from({ length: 60 }, (_, index) => at(`20.0.${index}.9`));
    await findOutMtu(at(ADDRESSES.nodeLan), CLIENT, found);
    const cached = await topology.node.must('ip', 'route', 'show', 'cache');
    expect(cached.match(/mtu 1300/g)?.length).toBeGreaterThanOrEqual(found.length);
    copy();
    expect(isHeld()).toBe(true);
    const seen = (by: string, source: string): number => {
      copying.forget();
      copying.context.setUint32(SKB.ifindex, interfaces[by] ?? 0, true);
      return copying.runPacket({ ...udp, source: at(source), destination: by === 'lan0' ? SERVER : CLIENT }).returned;
    };
    expect([seen('lan0', '20.5.5.5'), seen('wan0', '20.5.5.5')]).toEqual([DROPPED, PASSED]);
    expect([seen('lan0', '20.0.7.9'), seen('wan0', '20.0.7.9')]).toEqual([PASSED, DROPPED]);
  });

  test('the routes copied into the datapath are not used for packets from an interface that does not forward', async () => {
    await copyAndFalsify();
    await forward('lan0', 0);
    expect(isDropped()).toBe(false);
  });

  test('routes are copied into the datapath only after they have stayed unchanged for 100 ms', async () => {
    copy();
    await ip('route add 10.91.0.0/16 via 10.77.2.2');
    const isMade = (): boolean => held.words[ROUTES.made] === held.words[ROUTES.seen];
    nowMs += MINUTE_MS;
    copying.routes.look(nowMs);
    copying.routes.look(nowMs + 50);
    expect(isMade()).toBe(false);
    copying.routes.look(nowMs + 101);
    expect(isMade()).toBe(true);
  });

  // This test must stay the last: a routing rule permanently marks the network namespace in the kernel.
  test('the routes copied into the datapath are not used after a routing rule was added, even before the next check', async () => {
    await copyAndFalsify();
    await ip('rule add pref 100 to 10.76.0.0/16 lookup 100');
    expect(isDropped()).toBe(false);
    await ip('route add 10.76.0.0/16 via 10.77.2.2');
    await ip('route add 10.76.0.0/16 via 10.77.1.2 table 100');
    copy();
    expect(verdicts(copying)).toEqual(verdicts(asking));
  });
});
