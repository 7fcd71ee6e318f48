import type { ChildProcess } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, type Topology } from '#cli/tour/topology.js';

/**
 * The CPU of all DNS proxies under test. The load generator and the upstream server run on `LOAD_CPU`
 * instead, so that they take no CPU time from the proxies.
 */
const PROXY_CPU = '1';
export const LOAD_CPU = '0';
const READY_MS = 20_000;

export const NAMES = (count: number): string[] => Array.from({ length: count }, (_, index) => `n${index}.example.com`);

/** A DNS proxy under test on the node. The client sends queries to UDP port `port`. `end` stops the proxy. */
export type Subject = { readonly name: string; readonly port: number; end(): Promise<void> };

/** Starts unbound as upstream server. Its configuration file maps each of `names` to a different address. */
export async function startUpstream(
  topology: Topology,
  folder: string,
  names: readonly string[],
  ttl: number,
): Promise<ChildProcess> {
  const file = join(folder, `upstream-${ttl}.conf`);
  const lines = [
    ...unboundAt(ADDRESSES.server, 53, folder),
    '  minimal-responses: yes',
    // dnsdist checks the health of the upstream server with a query for another name. Without the zone `.`,
    // unbound does not answer that query.
    '  local-zone: "." static',
    ...names.map((name, index) => `  local-data: "${name}. ${ttl} IN A ${addressOf(index)}"`),
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const child = topology.server.start('taskset', ['-c', LOAD_CPU, 'unbound', '-d', '-c', file]);
  child.stdout?.resume();
  child.stderr?.resume();
  await answers(topology, ADDRESSES.server, 53);
  return child;
}

/** Returns the address of the name with number `index`. The benchmark sends no packet to these addresses. */
function addressOf(index: number): string {
  return `20.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
}

/**
 * Writes a policy with one rule for each name. If `names` is null, the policy has one rule without a
 * hostname: it allows every DNS lookup, and Weir learns no address.
 */
export async function putRules(node: NodeProcess, names: readonly string[] | null): Promise<void> {
  const rules = (names ?? [undefined]).map((name, index) => ({
    id: `r${index}`,
    action: 'allow',
    match: { ...(name !== undefined && { dns_hostname: name }), proto: 'tcp', dst_ports: [443] },
  }));
  const group = { id: 'clients', mode: 'enforce', sources: { ips: [ADDRESSES.client] }, rules };
  const reply = await node.request('PUT', '/api/v1/policy', { default_policy: 'deny', source_groups: [group] });
  if (reply.status >= 300) throw new Error(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
}

/** Starts a Weir node whose policy has one rule for each name. */
export async function startWeir(
  topology: Topology,
  names: readonly string[],
  more: Readonly<Record<string, unknown>> = {},
): Promise<Subject & { readonly node: NodeProcess }> {
  const node = await startNode(topology, {
    cpu: PROXY_CPU,
    sections: {
      policy: { activation_timeout: '60s' },
      dns: { listen: [`${ADDRESSES.nodeLan}:53`], upstreams: [`${ADDRESSES.server}:53`], ...more },
    },
  });
  await node.ready({ except: ['policy_ready'] });
  await putRules(node, names);
  await node.ready();
  return { name: 'weir', port: 53, node, end: () => node.remove() };
}

export async function startCompetitor(
  topology: Topology,
  folder: string,
  name: 'dnsdist' | 'unbound' | 'dnsmasq',
  port: number,
  names: readonly string[],
  isCaching: boolean,
): Promise<Subject> {
  const file = join(folder, `${name}.conf`);
  await writeFile(file, `${configOf(name, folder, port, names, isCaching).join('\n')}\n`);
  const words = {
    dnsdist: ['-C', file, '--supervised', '--disable-syslog'],
    unbound: ['-d', '-c', file],
    dnsmasq: ['--no-daemon', `--conf-file=${file}`],
  }[name];
  const child = topology.node.start('taskset', ['-c', PROXY_CPU, name, ...words]);
  child.stdout?.resume();
  child.stderr?.resume();
  await answers(topology, ADDRESSES.nodeLan, port);
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    name,
    port,
    end: async () => {
      child.kill('SIGKILL');
      await gone;
    },
  };
}

function unboundAt(address: string, port: number, folder: string): readonly string[] {
  return [
    'server:',
    `  interface: ${address}@${port}`,
    '  access-control: 0.0.0.0/0 allow',
    '  do-daemonize: no',
    '  username: ""',
    '  chroot: ""',
    `  directory: "${folder}"`,
    '  pidfile: ""',
    '  use-syslog: no',
    '  num-threads: 1',
  ];
}

function configOf(
  name: 'dnsdist' | 'unbound' | 'dnsmasq',
  folder: string,
  port: number,
  names: readonly string[],
  isCaching: boolean,
): readonly string[] {
  switch (name) {
    case 'dnsdist':
      return [
        `setLocal("${ADDRESSES.nodeLan}:${port}")`,
        'setACL("0.0.0.0/0")',
        `newServer({address="${ADDRESSES.server}:53", healthCheckMode="up"})`,
        ...(isCaching ? ['getPool(""):setCache(newPacketCache(200000))'] : []),
        'allowed = newSuffixMatchNode()',
        // A Lua loop adds the names, because one line of Lua for each name exceeds a limit of Lua.
        `for each = 0, ${names.length - 1} do allowed:add(newDNSName("n" .. each .. ".example.com")) end`,
        'addAction(NotRule(SuffixMatchNodeRule(allowed)), RCodeAction(DNSRCode.NXDOMAIN))',
      ];
    case 'unbound':
      return [
        ...unboundAt(ADDRESSES.nodeLan, port, folder),
        '  module-config: "iterator"',
        '  outgoing-range: 4096',
        '  num-queries-per-thread: 4096',
        '  so-rcvbuf: 4m',
        '  do-not-query-localhost: no',
        '  local-zone: "." refuse',
        ...names.map((each) => `  local-zone: "${each}" transparent`),
        'forward-zone:',
        '  name: "."',
        `  forward-addr: ${ADDRESSES.server}@53`,
      ];
    case 'dnsmasq':
      return [
        'no-resolv',
        'no-hosts',
        'user=root',
        'group=root',
        'pid-file=',
        'bind-interfaces',
        `listen-address=${ADDRESSES.nodeLan}`,
        `port=${port}`,
        `cache-size=${isCaching ? 20_000 : 0}`,
        'dns-forward-max=10000',
        ...names.map((each) => `server=/${each}/${ADDRESSES.server}`),
      ];
  }
}

async function answers({ client, server }: Topology, address: string, port: number): Promise<void> {
  const asker = address === ADDRESSES.server ? server : client;
  const deadline = performance.now() + READY_MS;
  for (;;) {
    const { stdout } = await asker.run(
      'dig',
      `@${address}`,
      '-p',
      String(port),
      '+tries=1',
      '+time=1',
      'n1.example.com',
    );
    if (stdout.includes('status: NOERROR')) return;
    if (performance.now() > deadline) throw new Error(`no DNS server answers on ${address}:${port}\n${stdout}`);
  }
}
