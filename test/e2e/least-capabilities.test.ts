import { mkdirSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type NodeProcess, program, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { DNS_SECTION, data, dig, startUpstream } from './names.js';
import { isInstalled, leastPrivileges, policyOf } from './rig.js';
import { Talkers } from './tcp-peers.js';

/** No host has this address, so only the DNS proxy of the node can answer a DNS query to this address. */
const ELSEWHERE = '198.51.100.53';
const PORTS = { steady: 80, named: 81, inspected: 443 } as const;
/**
 * Options for polls. The limit of ten seconds is longer than the time-out of the steady flows (two seconds).
 */
const soon = { timeout: 10_000, interval: 20 };

type Steady = { readonly pongs: () => number; readonly others: () => readonly string[] };

/**
 * Starts a client with one flow that sends a packet every 20 ms. `pongs` counts the echoes; `others` returns
 * all other lines of output.
 */
function steadyFlow({ client }: Topology, mode: 'connect' | 'connect-udp'): Steady {
  const words = [mode, ADDRESSES.server, String(PORTS.steady), '--every', '20', '--timeout', '2000'];
  const child = client.start(process.execPath, [program('tour-traffic'), ...words]);
  let pongs = 0;
  const others: string[] = [];
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    for (const line of text.split('\n').filter((each) => each !== '')) {
      if (line.startsWith('pong')) pongs++;
      else others.push(line);
    }
  });
  return { pongs: () => pongs, others: () => others };
}

// An installed Weir never runs as root, so these tests then omit the user root.
const USERS: [string, number | undefined][] = [['another user', 65_534]];
if (!isInstalled) USERS.unshift(['root', undefined]);
describe.each(USERS)('a node that runs as %s without CAP_SYS_ADMIN', (_, user) => {
  let rig: InspectedRig;
  afterEach(() => rig?.remove());

  /**
   * Returns the opening times of the flows on the steady port in units of 0.1 s, by protocol. Each node
   * process converts kernel time to wall-clock time again, so the test compares the times of several
   * processes.
   */
  const opened = async (): Promise<Record<string, number>> => {
    const { body } = await rig.node.request('GET', `/api/v1/flows?dst_port=${PORTS.steady}`);
    const { items } = body as { readonly items: readonly { readonly proto: number; readonly opened: string }[] };
    return Object.fromEntries(items.map(({ proto, opened: at }) => [proto, Math.round(Date.parse(at) / 100)]));
  };

  test('a node without CAP_SYS_ADMIN starts, restarts, and takes over the datapath after a kill, while established flows continue', async () => {
    rig = await createInspectedRig(
      `least${user ?? ''}`,
      {},
      {
        ...leastPrivileges([], user),
        sections: { dns: { ...DNS_SECTION, transparent: true } },
      },
    );
    const { node, topology } = rig;
    await topology.node.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.server);
    await startUpstream(rig);
    const serving = topology.server.start(process.execPath, [program('tour-traffic'), 'serve', String(PORTS.named)]);
    await new Promise((resolve) => serving.stdout?.once('data', resolve));
    await rig.put(
      policyOf([
        { match: { dst_ports: [PORTS.steady] } },
        { match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [PORTS.named] } },
        { match: { proto: 'tcp', dst_ports: [PORTS.inspected], tls: { sni: [SERVER_NAME] } } },
      ]),
    );
    await node.ready();
    const flows = [steadyFlow(topology, 'connect'), steadyFlow(topology, 'connect-udp')];
    await expect.poll(() => flows.every(({ pongs }) => pongs() > 5), soon).toBe(true);
    const before = await opened();
    expect(Object.keys(before)).toEqual(['6', '17']);
    const talkers = await Talkers.at(rig, PORTS.inspected);

    const serves = async (): Promise<void> => {
      await node.ready();
      const seen = flows.map(({ pongs }) => pongs());
      await expect.poll(() => flows.every(({ pongs }, at) => pongs() > (seen[at] ?? 0) + 5), soon).toBe(true);
      const now = await opened();
      for (const [proto, at] of Object.entries(before)) expect(Math.abs((now[proto] ?? 0) - at)).toBeLessThanOrEqual(1);
      const dug = await dig(rig, ELSEWHERE, 'api.example.com');
      expect(data(dug), dug.text).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
      expect(await rig.tcp(PORTS.named)).toBe('open');
      expect(await rig.tcp(82)).toBe('refused ETIMEDOUT');
      await talkers.offloaded();
      await talkers.end();
    };
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      await node.end(signal);
      await node.restart();
      await serves();
    }
    // With another flow capacity, the restarted node must move the flows to a new flow table.
    await node.end('SIGTERM');
    const file = join(node.folder, 'weir.yaml');
    const config = JSON.parse(await readFile(file, 'utf8')) as { dataplane: object };
    await writeFile(file, JSON.stringify({ ...config, dataplane: { ...config.dataplane, flow_capacity: 8_192 } }));
    await node.restart();
    await serves();
    expect(flows.map(({ others }) => others())).toEqual([['open'], []]);
    expect(await node.log()).not.toMatch(/EPERM/);
  });
});

describe('missing capabilities', () => {
  let topology: Topology;
  let node: NodeProcess | undefined;
  afterEach(async () => {
    await node?.remove();
    await topology.remove();
  });

  const detailOf = async (name: string): Promise<string> => {
    const response = await fetch(`${node?.url}/ready`).catch(() => undefined);
    const report = (await response?.json()) as { checks: { name: string; ok: boolean; detail: string }[] } | undefined;
    return report?.checks.find((check) => check.name === name && !check.ok)?.detail ?? '';
  };

  test.each([[['NET_ADMIN']], [['BPF']], [['PERFMON']], [['NET_ADMIN', 'BPF', 'PERFMON']]])(
    'readiness names the missing capability that the datapath needs: %j',
    async (missing) => {
      topology = await createTopology('lacks');
      node = await startNode(topology, leastPrivileges(missing));
      const sentences = missing.map((name) => ` The capability CAP_${name} is missing: run as root, or grant it.`);
      await expect
        .poll(() => detailOf('dataplane_running'), { timeout: 15_000 })
        .toBe(`this machine does not meet the requirements of the dataplane:${sentences.join('')}`);
    },
  );

  test('readiness names the maps of a build before map layout 6 that cannot be taken over, and the command that removes them', async () => {
    topology = await createTopology('lacks');
    const set = join(topology.pinPath, 'maps-1');
    mkdirSync(set, { recursive: true });
    const words = `name active type array key 4 value 8 entries 1`.split(' ');
    await topology.node.must('bpftool', 'map', 'create', join(set, 'active'), ...words);
    const update = 'key 0 0 0 0 value 5 0 0 0 0 0 0 0'.split(' ');
    await topology.node.must('bpftool', 'map', 'update', 'pinned', join(set, 'active'), ...update);
    node = await startNode(topology, leastPrivileges());
    await expect
      .poll(() => detailOf('dataplane_running'), { timeout: 15_000 })
      .toMatch(/maps-1 belongs to a build of Weir that this build cannot take over; .*: run weir dataplane detach/);
  });

  test('readiness names the missing CAP_NET_BIND_SERVICE, which the DNS proxy needs to listen on a port below 1024', async () => {
    topology = await createTopology('lacks');
    const sections = { dns: { ...DNS_SECTION, transparent: true } };
    node = await startNode(topology, { ...leastPrivileges(['NET_BIND_SERVICE']), sections });
    await expect.poll(() => detailOf('dns_allowlist')).toContain('CAP_NET_BIND_SERVICE missing');
  });
});
