import type { Socket } from 'node:dgram';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { boundSocket } from '#test/kernel/bound-socket.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { enterNamespace } from '#test/kernel/namespace.js';
import { HAS_KUBE_API, KubeApi, WITHOUT_CONTROLLERS } from '#test/kubernetes/kube-api.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { createRig, type NodeRig } from './rig.js';

/** The API of the node in its own namespace. The API server of Kubernetes runs there too. */
const API = 'http://127.0.0.1:8080';
const [PORT, OTHER_PORT, CLIENT_PORT] = [8_000, 8_001, 40_000];
/** The longest permitted time from a change of a pod to its record in the store. */
const STORED_WITHIN_MS = 300;
const soon = { timeout: 30_000, interval: 50 };

const POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'web',
      mode: 'enforce',
      sources: {
        kubernetes: [{ integration: 'prod', pod_selector: { namespace: 'default', match_labels: { app: 'web' } } }],
      },
      rules: [
        {
          id: 'out',
          action: 'allow',
          match: { proto: 'udp', dst_ips: [ADDRESSES.server, IPV6.server], dst_ports: [PORT] },
        },
      ],
    },
  ],
};

skipUnless(HAS_KUBE_API, LACKS.kubeApi).describe('a node with IPv6 policies and a dual-stack cluster', () => {
  let rig: NodeRig;
  let kube: KubeApi;
  let leave: () => void;
  const ends = { ipv4: ADDRESSES, ipv6: IPV6 } as const;
  const families = ['ipv4', 'ipv6'] as const;
  const clients = new Map<string, Socket>();
  const servers: Socket[] = [];
  const arrived = new Map<string, number>();

  const api = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(API + path, {
      method,
      headers: { authorization: `Bearer ${await rig.node.token()}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const cli = async (...words: string[]): Promise<string> => {
    const { out, err } = await run([...words, '--server', API], { WEIR_TOKEN: await rig.node.token() });
    return out + err;
  };
  /** Returns the detail of the check `policy_ready`, which also tells of stale members. */
  const policyDetail = async (): Promise<string | undefined> => {
    const checks = (await api('GET', '/ready')).body.checks as { name: string; detail: string }[];
    return checks.find(({ name }) => name === 'policy_ready')?.detail;
  };
  /** Returns the families by which a datagram of the pod arrives at a port. */
  const passing = async (port = PORT): Promise<string[]> => {
    const before = new Map(arrived);
    for (const family of families) clients.get(family)?.send('x', port, ends[family].server);
    await pause(150);
    return families.filter((family) => arrived.get(`${family} ${port}`) !== before.get(`${family} ${port}`));
  };
  const createPod = async (name: string): Promise<void> => {
    await kube.createPod(name, { labels: { app: 'web' } });
    const podIPs = families.map((family) => ({ ip: ends[family].client }));
    await kube.setStatus(name, { phase: 'Running', podIP: ADDRESSES.client, podIPs });
  };
  const remove = (name: string) =>
    kube.must('DELETE', `/api/v1/namespaces/default/pods/${name}`, { gracePeriodSeconds: 0 });

  beforeAll(async () => {
    rig = await createRig('k8sdual', [], { dataplane: { ipv6: 'enforce' } });
    const { topology } = rig;
    await addIpv6(topology);
    for (const family of families) {
      clients.set(family, await boundSocket(topology.client.name, ends[family].client, CLIENT_PORT));
      for (const port of [PORT, OTHER_PORT]) {
        const socket = await boundSocket(topology.server.name, ends[family].server, port);
        const key = `${family} ${port}`;
        socket.on('message', () => arrived.set(key, (arrived.get(key) ?? 0) + 1));
        servers.push(socket);
      }
    }
    leave = enterNamespace(topology.node.name);
    kube = await KubeApi.start('kube-apiserver', [...WITHOUT_CONTROLLERS, '--feature-gates=IPv6DualStack=true']);
    const token = await kube.createAccount('weir', ['pods', 'nodes', 'namespaces']);
    const podCIDRs = ['10.77.1.0/24', 'fd77:1::/64'];
    await kube.must('POST', '/api/v1/nodes', { metadata: { name: 'n1' }, spec: { podCIDR: podCIDRs[0], podCIDRs } });
    await api('POST', '/api/v1/integrations', {
      name: 'prod',
      kind: 'kubernetes',
      api_server_url: kube.url,
      ca_cert_pem: kube.certificate.ca,
      service_account_token: token,
    });
    expect((await api('PUT', '/api/v1/policy', POLICY)).status).toBe(200);
  });
  afterAll(async () => {
    for (const socket of [...clients.values(), ...servers]) socket.close();
    await kube?.remove();
    leave?.();
    await rig?.remove();
  });

  it('the packets of a dual-stack pod pass by both IP families while the pod exists', async () => {
    await expect.poll(policyDetail, soon).toBe('a policy is active');
    expect(await passing()).toEqual([]);
    await createPod('a');
    await expect.poll(() => passing(), soon).toEqual(families);
    expect(await passing(OTHER_PORT)).toEqual([]);
    await remove('a');
    await expect.poll(() => passing(), soon).toEqual([]);
  });

  it('members, flows, findings and explanations name the pod that owns an IPv6 address', async () => {
    await createPod('a');
    await expect.poll(() => passing(), soon).toEqual(families);
    const rows = (await cli('policy', 'members', 'web')).split('\n').map((line) => line.split(/ {2,}/));
    expect(rows.slice(1, 3)).toEqual([
      [ADDRESSES.client, 'pod', 'default', 'a', 'prod'],
      [IPV6.client, 'pod', 'default', 'a', 'prod'],
    ]);
    const [record] = (await api('GET', '/api/v1/policies')).body.items as { readonly id: string }[];
    const page = (await api('GET', `/api/v1/policies/${record?.id}/source-groups/web/members?limit=1`)).body;
    expect(page).toMatchObject({ items: [{ address: ADDRESSES.client }], total: 2, next: ADDRESSES.client });
    expect(await cli('flows', '--src', IPV6.client)).toContain('default/a (');
    const denied = async () => {
      await passing(OTHER_PORT);
      const { body } = await api('GET', `/api/v1/audit/findings?dst=${IPV6.server}&limit=10`);
      return body.items;
    };
    const owner = { integration: 'prod', kind: 'pod', namespace: 'default', name: 'a' };
    const found = expect.objectContaining({ src_ip: IPV6.client, dst_port: OTHER_PORT, src_owner: owner });
    await expect.poll(denied, soon).toContainEqual(found);
    const words = ['--src', IPV6.client, '--dst', IPV6.server, '--proto', 'udp', '--dst-port', String(PORT)];
    const explained = await cli('policy', 'explain', ...words);
    expect(explained).toMatch(/^allow by group web, rule out\n/);
    expect(explained).toContain('\nsource: pod default/a of prod');
  });

  it('the members of both IP families stay while the Kubernetes API server is down, also after a restart of the node', async () => {
    await expect.poll(() => passing(), soon).toEqual(families);
    await pause(STORED_WITHIN_MS);
    await kube.signal('SIGKILL');
    leave();
    await rig.node.restart();
    await rig.node.ready();
    leave = enterNamespace(rig.topology.node.name);
    expect(await passing()).toEqual(families);
    expect(await passing(OTHER_PORT)).toEqual([]);
    await kube.restart();
    await expect.poll(policyDetail, soon).toBe('a policy is active');
    await remove('a');
    await expect.poll(() => passing(), soon).toEqual([]);
  });
});
