import { once } from 'node:events';
import { type AddressInfo, connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { connect, createServer, type Server, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { ADDRESSES, createTopology, type Topology } from '#cli/tour/topology.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import type { MembershipChange, SelectorResolution } from '#contracts/kubernetes/membership.js';
import type { Family, Policy } from '#contracts/policy/policy-model.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { inEvaluationOrder, policyOf } from '#policy/check/policy-parts.js';
import { readPolicy } from '#policy/check/read-policy.js';
import { compile } from '#policy/compile/compile.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { PolicyWriter } from '#service-plane/policy-image.js';
import type { ServicePlane } from '#service-plane/service-plane.js';
import { createServicePlane } from '#service-plane/thread/service-plane-threads.js';
import { makeCertificates, SERVER_NAME } from '#test/service-plane/certificates.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { enterNamespace } from './namespace.js';
import { LISTEN, MARK, UPSTREAM_MARK } from './plane.js';

const PORT = 443;
const WEB = 1;
const { good } = makeCertificates();

function podsMayReachTheServer(): { readonly policy: Policy; readonly texts: readonly Uint8Array[] } {
  const kubernetes = [{ integration: 'prod', pod_selector: { match_labels: { app: 'web' } } }];
  const match = { proto: 'tcp', dst_ports: [PORT], tls: { sni: [SERVER_NAME] } };
  const rules = [{ id: 'https', action: 'allow', match }];
  const policy = { default_policy: 'deny', source_groups: [{ id: 'pods', sources: { kubernetes }, rules }] };
  const body = JSON.stringify({ name: 'p', mode: 'enforce', policy });
  const context = { dns: true, servicePlane: true, fallback: 'deny', recordMode: 'enforce', form: 'envelope' } as const;
  const read = readPolicy(body, { ...context, integrations: new Set(['prod']), parseCertificate: () => undefined });
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  const { parts } = read.parsed;
  return {
    policy: policyOf(parts, 'deny'),
    texts: inEvaluationOrder(parts.groups).map(({ text }) => text ?? new Uint8Array(0)),
  };
}

const { policy, texts } = podsMayReachTheServer();
const keys = policy.groups.flatMap(({ selectors }) => selectors.map(({ key }) => key));
const scope: SelectorResolution = { resolved: new Set(keys), podNetworks: [], networks: new Map() };
const change = (set: number, ...hosts: readonly string[]): MembershipChange => ({
  added: [{ number: WEB, keys }],
  addresses: hosts.map((host) => parseAddress(host) ?? 0),
  sets: Uint32Array.from(hosts, () => set),
  dropped: [],
});

const FAMILIES: readonly Family[] = ['ipv4', 'ipv6'];
const ENDS = {
  ipv4: { client: ADDRESSES.client, other: ADDRESSES.clientOther, server: ADDRESSES.server },
  ipv6: { client: IPV6.client, other: 'fd77:1::3', server: IPV6.server },
} as const;

describe.each(FAMILIES)('inspected connections of %s', (family) => {
  const ends = ENDS[family];
  let topology: Topology;
  let leave: () => void;
  let datapath: Datapath;
  let server: Server;
  let plane: ServicePlane;
  let members: MemberRecord;

  async function within<T>(namespace: string, act: () => Promise<T>): Promise<T> {
    const back = enterNamespace(namespace);
    try {
      return await act();
    } finally {
      back();
    }
  }

  /** Opens a TLS connection to the server, which sends back each byte. */
  function dial(localAddress: string): Promise<TLSSocket> {
    return within(topology.client.name, async () => {
      const options = { host: ends.server, port: PORT, localAddress, servername: SERVER_NAME };
      const socket = connect({ ...options, rejectUnauthorized: false }).on('error', () => {});
      await once(socket, 'secureConnect');
      return socket;
    });
  }

  /** Opens a TCP connection. `ended` is the code of its error. */
  function dialTcp(localAddress: string): Promise<{ readonly socket: Socket; readonly ended: Promise<unknown> }> {
    return within(topology.client.name, async () => {
      const socket = connectTcp({ host: ends.server, port: PORT, localAddress });
      const ended = codeOf(socket);
      // The connection can be reset before this thread handles `connect`: the socket then has only an error.
      await Promise.race([new Promise<void>((resolve) => socket.once('connect', resolve)), ended]);
      return { socket, ended };
    });
  }

  const handshake = (socket: Socket): TLSSocket =>
    connect({ socket, servername: SERVER_NAME, rejectUnauthorized: false }).on('error', () => {});

  async function echoes(socket: TLSSocket): Promise<boolean> {
    socket.write('x');
    const [data] = (await once(socket, 'data')) as [Buffer];
    return data.toString() === 'x';
  }

  const codeOf = (socket: Socket): Promise<unknown> =>
    new Promise((resolve) => socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code)));

  /** Changes a member in the record, in the kernel, and then in the service plane, in the order of a node. */
  async function changeMember(set: number, host: string): Promise<void> {
    members.change(change(set, host));
    await datapath.changeMembers(change(set, host));
    await plane.changeMembers(change(set, host));
  }

  beforeEach(async () => {
    topology = await createTopology('inspmem');
    await addIpv6(topology);
    await topology.client.must('ip', 'addr', 'replace', `${ENDS.ipv6.other}/64`, 'dev', 'eth0', 'nodad');
    server = createServer({ cert: good.certPem, key: good.keyPem }, (socket) => {
      socket.on('error', () => {});
      socket.pipe(socket);
    });
    await within(topology.server.name, () => once(server.listen(PORT, ends.server), 'listening'));
    expect((server.address() as AddressInfo).port).toBe(PORT);
    leave = enterNamespace(topology.node.name);
    datapath = openDatapath(datapathOptions(topology.pinPath, { servicePlane: LISTEN, ipv6: 'enforce' }));
    await datapath.open();
    await datapath.attach();
    members = new MemberRecord();
    const all = change(WEB, ends.client, ends.other);
    members.replace(all);
    await datapath.replaceMembers(all);
    await datapath.stage(compile(policy, { ipv6: true, membership: { scope, list: all } }), 1);
    await datapath.flip();
    const limits = { maxConnections: 16, maxConnectionsPerSource: 16 };
    const settings = { upstreamCa: 'system', deniedHttp: '403' as const, ...limits };
    const marks = { mark: MARK, upstreamMark: UPSTREAM_MARK };
    plane = createServicePlane(
      { families: FAMILIES, listen: LISTEN, workers: 2, ...settings, ...marks },
      undefined,
      () => members.list(),
    );
    await plane.open();
    const image = new PolicyWriter().write(policy, texts);
    plane.use({ generation: 1, program: null, policy: image, intercepts: false, scope });
  });

  afterEach(async () => {
    await plane.close();
    await datapath.close();
    leave();
    server.close();
    await topology.remove();
  });

  describe('an inspected connection whose source loses its right by a change of members', () => {
    test('a spliced (splice(2)) connection passes nothing while its source has lost its right by a change of Kubernetes members, and other connections continue', async () => {
      const [first, other] = [await dial(ends.client), await dial(ends.other)];
      expect([await echoes(first), await echoes(other)]).toEqual([true, true]);
      await changeMember(0, ends.client);
      await expect.poll(async () => (await plane.stats()).suspended).toBe(1);
      const echo = echoes(first);
      expect(await Promise.race([echo, pause(500, 'silent')])).toBe('silent');
      expect(await echoes(other)).toBe(true);
      await changeMember(WEB, ends.client);
      expect(await echo).toBe(true);
      for (const socket of [first, other]) socket.destroy();
    });

    test('an inspected connection without a decision is reset when its source loses its right by a change of Kubernetes members', async () => {
      const { socket } = await dialTcp(ends.client);
      await expect.poll(async () => (await plane.stats()).connections).toBe(1);
      await plane.changeMembers(change(0, ends.client));
      expect(await codeOf(handshake(socket))).toBe('ECONNRESET');
      expect((await plane.stats()).deny).toBe(1);
    });
  });

  test('a thread of the service plane that starts later receives the Kubernetes members before the policy', async () => {
    members.change(change(0, ends.other));
    await plane.open();
    const first = await dial(ends.client);
    expect(await echoes(first)).toBe(true);
    expect(await (await dialTcp(ends.other)).ended).toBe('ECONNRESET');
    first.destroy();
  });
});
