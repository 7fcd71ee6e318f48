import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { leavesOf } from '#config/disclosure.js';
import { readConfig } from '#config/load.js';
import { RELOADED_BY } from '#config/reload/reload-fields.js';
import { RunningConfig } from '#config/reload/running-config.js';
import { configSchema } from '#config/schema/config-schema.js';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';

type Tree = { [key: string]: unknown };

const folder = mkdtempSync(join(tmpdir(), 'weir-test-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const named = (name: string, text = ''): string => {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
};
const OTHER_FILE = named('other.pem', CERTIFICATE + KEY);
const mutualTls = {
  ca: named('ca.pem', CERTIFICATE),
  cert: named('cert.pem', CERTIFICATE),
  key: named('key.pem', KEY),
};

/** A configuration with every section, and for each field another valid value. `version` has only one. */
const BASE: Tree = {
  version: 1,
  node: { id: 'a', data_dir: '/data' },
  log: { level: 'info', format: 'json' },
  api: {
    listen: '127.0.0.1:8080',
    allowed_hosts: ['a.example'],
    requests_per_second: 10,
    failed_logins_per_minute: 10,
    request_timeout: '10s',
    max_connections: 10,
    max_connections_per_source: 10,
    console: true,
  },
  dataplane: { interfaces: ['lan0'], timeouts: {} },
  policy: { history: {} },
  dns: { listen: ['127.0.0.1:53'], upstreams: ['192.0.2.1:53'] },
  findings: {
    file: { path: '/findings' },
    webhook: { url: 'https://a.example/', secret_file: named('secret') },
  },
  flow_history: {},
  wiretap: {},
  metrics: { listen: '127.0.0.1:19649' },
  service_plane: {},
  kubernetes: { scope: 'node', in_cluster: { name: 'local' } },
  cluster: {
    etcd: { endpoints: ['https://a:2379'], tls: { ...mutualTls }, user: 'a', password_file: named('password') },
    peer: { listen: '127.0.0.1:7946', advertise: 'a:7946', tls: { ...mutualTls } },
    seal_key_file: named('seal'),
  },
};
const OTHER: Readonly<Record<string, unknown>> = {
  'node.id': 'b',
  'node.data_dir': '/other',
  'log.level': 'debug',
  'log.format': 'pretty',
  'api.listen': '127.0.0.1:8081',
  'api.allowed_hosts': ['b.example'],
  'api.requests_per_second': 11,
  'api.failed_logins_per_minute': 11,
  'api.request_timeout': '11s',
  'api.max_connections': 11,
  'api.max_connections_per_source': 11,
  'api.console': false,
  'dataplane.interfaces': ['lan0', 'wan*'],
  'dataplane.ipv6': 'pass',
  'dataplane.router_ports': ['eth7'],
  'dataplane.non_ipv4': 'pass',
  'dataplane.reverse_path': 'loose',
  'dataplane.police_local': true,
  'dataplane.translated': ['198.51.100.0/24'],
  'dataplane.forwarding': 'stack',
  'dataplane.pickup': '1s',
  'dataplane.flow_capacity': 2048,
  'dataplane.flow_share': 0.5,
  'dataplane.program_capacity': 65_536,
  ...Object.fromEntries(
    ['tcp_opening', 'tcp_established', 'tcp_half_closed', 'tcp_closing', 'udp', 'udp_replied', 'icmp', 'other'].map(
      (state) => [`dataplane.timeouts.${state}`, '77s'],
    ),
  ),
  'dataplane.grant_capacity': 2048,
  'dataplane.mark_mask': '0x0f000000',
  'dataplane.pin_path': '/sys/fs/bpf/other',
  'policy.fallback': 'allow',
  'policy.activation_timeout': '7s',
  'policy.history.revisions': 20,
  'policy.history.bytes': '2GiB',
  'policy.file': '/policy.yaml',
  'policy.assertions_file': '/assertions.yaml',
  'dns.listen': ['127.0.0.2:53'],
  'dns.upstreams': ['192.0.2.2:53', '192.0.2.1:53'],
  'dns.transparent': true,
  'dns.denied_response': 'refused',
  'dns.min_grant': '61s',
  'dns.max_grant': '23h',
  'dns.upstream_order': 'fastest',
  'dns.cache_size': 65,
  'dns.serve_stale': '1h',
  'dns.rebind_protection': false,
  'dns.rebind_allow': ['*.b.example'],
  'dns.canary_names': ['*.canary.example'],
  'findings.retention': '1d',
  'findings.max_entries': 1_001,
  'findings.file.path': '/other',
  'findings.file.max_size': 65,
  'findings.file.keep': 6,
  'findings.webhook.url': 'https://b.example/',
  'findings.webhook.secret_file': OTHER_FILE,
  'findings.webhook.timeout': '6s',
  'flow_history.retention': '1d',
  'flow_history.max_flows': 50_000,
  'wiretap.replay': '31s',
  'metrics.source_groups': 1,
  'metrics.listen': '127.0.0.1:19650',
  'service_plane.listen': '127.0.0.1:15002',
  'service_plane.workers': 3,
  'service_plane.max_connections': 17,
  'service_plane.max_connections_per_source': 17,
  'service_plane.upstream_ca': OTHER_FILE,
  'service_plane.denied_http': 'reset',
  'kubernetes.scope': 'cluster',
  'kubernetes.node_name': 'other',
  'kubernetes.pod_cidrs': ['10.244.0.0/16'],
  'kubernetes.close_new_pods': false,
  'kubernetes.in_cluster.name': 'other',
  'cluster.etcd.endpoints': ['https://b:2379'],
  'cluster.etcd.tls.ca': OTHER_FILE,
  'cluster.etcd.tls.cert': OTHER_FILE,
  'cluster.etcd.tls.key': OTHER_FILE,
  'cluster.etcd.user': 'b',
  'cluster.etcd.password_file': OTHER_FILE,
  'cluster.peer.listen': '127.0.0.1:7947',
  'cluster.peer.advertise': 'b:7946',
  'cluster.peer.tls.ca': OTHER_FILE,
  'cluster.peer.tls.cert': OTHER_FILE,
  'cluster.peer.tls.key': OTHER_FILE,
  'cluster.prefix': '/other',
  'cluster.seal_key_file': OTHER_FILE,
};
/** Fields that a configuration cannot change alone: `version` has one value, and TLS needs real files. */
const ONE_VALUE = ['version', 'api.tls.cert', 'api.tls.key', 'metrics.tls.cert', 'metrics.tls.key'];

const file = join(folder, 'weir.yaml');
function write(tree: Tree): void {
  writeFileSync(file, JSON.stringify(tree));
}
function withValue(key: string, value: unknown): Tree {
  const tree = structuredClone(BASE);
  const keys = key.split('.');
  const section = keys.slice(0, -1).reduce<Tree>((at, name) => at[name] as Tree, tree);
  section[keys.at(-1) ?? ''] = value;
  return tree;
}
function started(tree: Tree): RunningConfig {
  write(tree);
  return new RunningConfig(readConfig(file, {}), () => readConfig(file, {}));
}
/** Returns the values of all objects in a configuration as text, to find the changed ones. */
const textOf = (config: unknown): string => JSON.stringify(config);

test('every key of the configuration is either reloaded by a part of the node or needs a restart', () => {
  const keys = leavesOf(configSchema).map((path) => path.join('.'));
  expect(Object.keys(RELOADED_BY).sort()).toEqual([...keys].sort());
  expect(Object.keys(OTHER).sort()).toEqual(keys.filter((key) => !ONE_VALUE.includes(key)).sort());
});

describe.each(Object.keys(OTHER))('a changed %s', (key) => {
  test('a reload reports a changed key as the only difference, and applies the new value only if a part of the node reloads the key', () => {
    const running = started(BASE);
    const before = textOf(running.config);
    write(withValue(key, OTHER[key]));
    const by = RELOADED_BY[key as keyof typeof RELOADED_BY];
    const { changed, unchanged } = running.read();
    expect(changed).toEqual([{ keys: key.split('.'), by }]);
    expect(unchanged.map((keys) => keys.join('.'))).not.toContain(key);
    expect(textOf(running.config)).toBe(before);
    running.commit();
    expect(textOf(running.config) === before).toBe(by === 'restart');
    // A field that needs a restart is reported again, a reloaded one is not.
    expect(running.read().changed).toEqual(by === 'restart' ? changed : []);
  });
});

describe('the running configuration', () => {
  test('the running configuration reports an added and a removed section as one change that needs a restart', () => {
    const { dns, ...rest } = BASE;
    const running = started(rest);
    write({ ...rest, dns, api: { ...(rest.api as Tree), max_connections: 99 } });
    expect(running.read().changed).toEqual([
      { keys: ['api', 'max_connections'], by: 'api' },
      { keys: ['dns'], by: 'restart' },
    ]);
    running.commit();
    expect([running.config.dns, running.config.api.maxConnections]).toEqual([null, 99]);
    write({ ...rest, api: { ...(rest.api as Tree), max_connections: 99 }, findings: {} });
    expect(running.read().changed).toEqual([
      { keys: ['findings', 'file'], by: 'restart' },
      { keys: ['findings', 'webhook'], by: 'restart' },
    ]);
  });

  test('the running configuration stays unchanged if the file has errors, or if a file that was read is not put into use', () => {
    const running = started(BASE);
    const before = running.config;
    write({ ...BASE, log: { level: 'loud' } });
    expect(() => running.read()).toThrow(/log\.level/);
    write(withValue('log.level', 'debug'));
    running.read();
    expect([running.config, running.next.log.level]).toEqual([before, 'debug']);
  });

  test('the disclosed running configuration contains the new value of a reloaded field, and the former value of a field that needs a restart', () => {
    const running = started(withValue('node.id', 'a'));
    write({ ...withValue('log.level', 'debug'), node: { id: 'b', data_dir: '/data' } });
    running.read();
    running.commit();
    expect([running.disclosed['log.level'], running.disclosed['node.id']]).toEqual([
      { from: 'file', value: 'debug' },
      { from: 'file', value: 'a' },
    ]);
  });
});
