import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ConfigError } from '#config/config-problem.js';
import { loadConfig, parseConfig } from '#config/load.js';
import { DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const parse = (yaml: string, environment: Record<string, string> = {}) =>
  parseConfig(yaml, 'weir.yaml', environment).config;
function problemsOf(yaml: string, environment: Record<string, string> = {}): string[] {
  try {
    parse(yaml, environment);
  } catch (error) {
    if (error instanceof ConfigError)
      return error.message.split('\n').map((line, at) => `${error.problems[at]?.code} ${line}`);
    throw error;
  }
  return [];
}

const defaults = {
  node: { id: hostname(), dataDir: '/var/lib/weir' },
  log: { level: 'info', format: 'auto' },
  api: {
    listen: { host: '127.0.0.1', port: 8080 },
    tls: null,
    allowedHosts: [],
    requestsPerSecond: 500,
    failedLoginsPerMinute: 10,
    requestTimeoutMs: 15_000,
    maxConnections: 1000,
    maxConnectionsPerSource: 500,
    console: true,
  },
  dataplane: null,
  policy: {
    fallback: 'deny',
    activationTimeoutMs: 5000,
    file: null,
    assertionsFile: null,
    history: { revisions: 1_000, bytes: 2 ** 30 },
  },
  dns: null,
  findings: { retentionMs: 2_592_000_000, maxEntries: 100_000, file: null, webhook: null },
  flowHistory: { retentionMs: 604_800_000, maxFlows: 262_144 },
  wiretap: { replayMs: 30_000 },
  metrics: { sourceGroups: 0, listen: null, tls: null },
  servicePlane: null,
  kubernetes: { node: null, nodeName: hostname(), ipv6: false, podNetworks: undefined, inCluster: null },
  cluster: null,
};
const dataplane = {
  interfaces: ['lan0', 'wan*'],
  ipv6: 'drop',
  routerPorts: [],
  nonIpv4: 'drop',
  reversePath: 'strict',
  policeLocal: false,
  translated: [],
  forwarding: 'auto',
  pickupMs: 120_000,
  flowCapacity: 131_072,
  flowShare: 0.125,
  timeoutsMs: DEFAULT_TIMEOUTS_MS,
  grantCapacity: 262_144,
  programCapacity: 4_194_304,
  markMask: 0x00f0_0000,
  pinPath: '/sys/fs/bpf/weir',
};

describe('configuration file', () => {
  it('a configuration file is valid with only the key `version`; every other key has a default', () => {
    expect(parse('version: 1')).toEqual(defaults);
    expect(problemsOf('')).toEqual(['missing_key weir.yaml: version: is required']);
    expect(problemsOf('version: 2')).toEqual(['invalid_value weir.yaml:1:10: version: must be 1']);
  });

  it('a configuration file is loaded with the configured value of every key in every section', () => {
    const folder = temporaryFolder();
    const pem = join(folder, 'any.pem');
    writeFileSync(pem, CERTIFICATE + KEY);
    const config = parse(`
version: 1
node: { id: node-a, data_dir: /data }
log: { level: debug, format: pretty }
api:
  listen: "[::]:8443"
  tls: { cert: ${pem}, key: ${pem} }
  allowed_hosts: [weir.example.com]
  requests_per_second: 7
  failed_logins_per_minute: 3
  request_timeout: 2m
  max_connections: 5
  max_connections_per_source: 4
  console: false
dataplane:
  interfaces: [lan0, wan*]
  ipv6: pass
  router_ports: [wan0]
  non_ipv4: pass
  reverse_path: off
  police_local: true
  translated: [10.96.0.0/12]
  forwarding: direct
  timeouts: { udp: 5s, tcp_established: 168h }
  pickup: 0s
  flow_capacity: 1024
  flow_share: 0.25
  grant_capacity: 2048
  mark_mask: 0x3
  pin_path: /bpf
policy: { fallback: allow, activation_timeout: 500ms, file: ${pem}, assertions_file: ${pem}, history: { revisions: 20, bytes: 3MiB } }
dns:
  listen: ["10.1.0.1:53", "10.1.0.2:53"]
  upstreams: ["192.0.2.53:53"]
  transparent: true
  denied_response: refused
  min_grant: 1s
  max_grant: 2h
findings:
  retention: 7d
  max_entries: 5000
  file: { path: /var/log/weir/findings.jsonl, max_size: 2, keep: 3 }
  webhook: { url: "https://siem.example/in?key=1", secret_file: ${pem}, timeout: 2s }
flow_history: { retention: 1d, max_flows: 50000 }
wiretap: { replay: 1m }
metrics: { source_groups: 50, listen: "[::1]:19649" }
service_plane: { listen: 127.0.0.1:15001, upstream_ca: ${pem}, denied_http: 403 }
kubernetes: { scope: node, node_name: n1, pod_cidrs: [10.244.0.0/16], in_cluster: { name: local } }
cluster:
  etcd:
    endpoints: ["https://10.0.0.1:2379"]
    tls: { ca: ${pem}, cert: ${pem}, key: ${pem} }
    user: weir
    password_file: ${pem}
  peer: { listen: 0.0.0.0:7946, advertise: node-a.local:7946, tls: { ca: ${pem}, cert: ${pem}, key: ${pem} } }
  prefix: /other
  seal_key_file: ${pem}
`);
    expect(config).toEqual({
      node: { id: 'node-a', dataDir: '/data' },
      log: { level: 'debug', format: 'pretty' },
      api: {
        listen: { host: '::', port: 8443 },
        tls: { cert: pem, key: pem },
        allowedHosts: ['weir.example.com'],
        requestsPerSecond: 7,
        failedLoginsPerMinute: 3,
        requestTimeoutMs: 120_000,
        maxConnections: 5,
        maxConnectionsPerSource: 4,
        console: false,
      },
      dataplane: {
        interfaces: ['lan0', 'wan*'],
        ipv6: 'pass',
        routerPorts: ['wan0'],
        nonIpv4: 'pass',
        reversePath: 'off',
        policeLocal: true,
        translated: [{ address: 0x0a60_0000, length: 12 }],
        forwarding: 'direct',
        pickupMs: 0,
        flowCapacity: 1024,
        flowShare: 0.25,
        timeoutsMs: { ...dataplane.timeoutsMs, udp_opened: 5_000, tcp_established: 604_800_000 },
        grantCapacity: 2048,
        programCapacity: 4_194_304,
        markMask: 3,
        pinPath: '/bpf',
      },
      policy: {
        fallback: 'allow',
        activationTimeoutMs: 500,
        file: pem,
        assertionsFile: pem,
        history: { revisions: 20, bytes: 3 * 2 ** 20 },
      },
      dns: {
        listen: [
          { host: '10.1.0.1', port: 53 },
          { host: '10.1.0.2', port: 53 },
        ],
        upstreams: [{ host: '192.0.2.53', port: 53 }],
        transparent: true,
        deniedResponse: 'refused',
        minGrantMs: 1000,
        maxGrantMs: 7_200_000,
        upstreamOrder: 'listed',
        cacheBytes: 67_108_864,
        serveStaleMs: 0,
        rebindProtection: true,
        rebindAllow: [],
        canaryNames: [
          'use-application-dns.net',
          'mask.icloud.com',
          'mask-h2.icloud.com',
          'mask-canary.icloud.com',
          'dns-tunnel-check.googlezip.net',
        ],
      },
      findings: {
        retentionMs: 604_800_000,
        maxEntries: 5_000,
        file: { path: '/var/log/weir/findings.jsonl', maxBytes: 2_097_152, keep: 3 },
        webhook: { url: 'https://siem.example/in?key=1', secretFile: pem, timeoutMs: 2_000 },
      },
      flowHistory: { retentionMs: 86_400_000, maxFlows: 50_000 },
      wiretap: { replayMs: 60_000 },
      metrics: { sourceGroups: 50, listen: { host: '::1', port: 19649 }, tls: null },
      servicePlane: {
        listen: { host: '127.0.0.1', port: 15_001 },
        workers: 2,
        maxConnections: 32_768,
        maxConnectionsPerSource: 4_096,
        upstreamCa: pem,
        deniedHttp: '403',
      },
      kubernetes: {
        node: 'n1',
        nodeName: 'n1',
        ipv6: false,
        podNetworks: [{ address: 0x0af4_0000, length: 16 }],
        inCluster: 'local',
      },
      cluster: {
        etcd: {
          endpoints: ['https://10.0.0.1:2379'],
          tls: { ca: pem, cert: pem, key: pem },
          user: { name: 'weir', passwordFile: pem },
        },
        peer: {
          listen: { host: '0.0.0.0', port: 7946 },
          advertise: { host: 'node-a.local', port: 7946 },
          tls: { ca: pem, cert: pem, key: pem },
        },
        prefix: '/other',
        sealKeyFile: pem,
      },
    });
  });

  it('a configuration file is loaded as an object that is frozen recursively', () => {
    const config = parse('version: 1\ndataplane: { interfaces: [lan0] }');
    expect(() => Object.assign(config.api.listen, { port: 1 })).toThrow(TypeError);
    expect(() => (config.dataplane?.interfaces as string[] | undefined)?.push('wan0')).toThrow(TypeError);
  });

  it('a configuration file is refused with all its problems at once, each with key, line and column', () => {
    expect(
      problemsOf(`version: 1
nodes: { id: a }
api:
  listen: 8080
  lsten: 127.0.0.1:8080
  request_timeout: 15
dataplane:
  interfaces: [lan0, "wan*0", this-name-is-too-long, "*"]
  non_ipv4: accept
  flow_capacity: 1.5
  flow_share: 0
  mark_mask: 0x00100000
  police_local: yes
  translated: [10.96.0.1/12, 10.96.0.0]
  ipv6: filter
dns: { listen: ["dns.example:53"] }
policy: []
log:
`),
    ).toEqual([
      'invalid_value weir.yaml:18:1: log: must be a section with keys',
      'invalid_value weir.yaml:4:11: api.listen: must be `host:port`, such as 127.0.0.1:8080',
      'invalid_value weir.yaml:6:20: api.request_timeout: must be a duration such as 500ms, 60s, 5m or 2h',
      'unknown_key weir.yaml:5:3: api.lsten: there is no such key',
      'invalid_value weir.yaml:8:22: dataplane.interfaces.1: may have a * only at its end',
      'invalid_value weir.yaml:8:31: dataplane.interfaces.2: must be an interface name of 1 to 15 characters',
      'invalid_value weir.yaml:8:54: dataplane.interfaces.3: matches every interface, loopback included: put the beginning of a name before the *',
      'invalid_value weir.yaml:15:9: dataplane.ipv6: must be one of drop, pass, enforce',
      'invalid_value weir.yaml:9:13: dataplane.non_ipv4: must be one of drop, pass',
      'invalid_value weir.yaml:13:17: dataplane.police_local: must be true or false',
      'invalid_value weir.yaml:14:16: dataplane.translated.0: must be an IPv4 network, such as 10.96.0.0/12',
      'invalid_value weir.yaml:14:30: dataplane.translated.1: must be an IPv4 network, such as 10.96.0.0/12',
      'invalid_value weir.yaml:10:18: dataplane.flow_capacity: must be a whole number from 1024 to 16777216',
      'invalid_value weir.yaml:11:15: dataplane.flow_share: must be a number from 0.001 to 1',
      'invalid_value weir.yaml:12:14: dataplane.mark_mask: must be a 32-bit mask with at least 2 bits set, such as 0x00f00000',
      'invalid_value weir.yaml:17:1: policy: must be a section with keys',
      'invalid_value weir.yaml:16:17: dns.listen.0: must be `address:port`, such as 10.1.0.1:53',
      'missing_key weir.yaml:16:1: dns.upstreams: is required',
      'unknown_key weir.yaml:2:1: nodes: there is no such key',
    ]);
  });

  it('a configuration with a `kubernetes` scope but no node name watches the pods of the Kubernetes node named `node.id`', () => {
    const { kubernetes } = parse('version: 1\nnode: { id: n2 }\nkubernetes: { scope: node }');
    expect(kubernetes).toEqual({ node: 'n2', nodeName: 'n2', ipv6: false, podNetworks: undefined, inCluster: null });
    expect(parse('version: 1\nkubernetes: { node_name: n1 }').kubernetes.node).toBeNull();
    expect(parse('version: 1\nkubernetes: { close_new_pods: false }').kubernetes.podNetworks).toEqual([]);
  });

  it('a configuration file is refused if a pod network is no network, or if the integration in the cluster has no valid name', () => {
    const yaml = `version: 1
kubernetes:
  scope: pod
  pod_cidrs: [10.244.0.0/16, "fd00::1/64", 10.244.0.1/16]
  in_cluster: { name: Local }
`;
    expect(problemsOf(yaml)).toEqual([
      'invalid_value weir.yaml:3:10: kubernetes.scope: must be one of cluster, node',
      'invalid_value weir.yaml:4:30: kubernetes.pod_cidrs.1: must be a network, such as 10.244.0.0/16 or fd00:10:244::/56',
      'invalid_value weir.yaml:4:44: kubernetes.pod_cidrs.2: must be a network, such as 10.244.0.0/16 or fd00:10:244::/56',
      'invalid_value weir.yaml:5:23: kubernetes.in_cluster.name: must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end',
    ]);
    expect(problemsOf('version: 1\nkubernetes: { in_cluster: {} }')).toEqual([
      'missing_key weir.yaml:2:15: kubernetes.in_cluster.name: is required',
    ]);
  });

  it('a configuration file may have IPv6 networks of pods only if the node enforces IPv6 policies', () => {
    const yaml = (setting: string) => `version: 1
dataplane: { interfaces: [lan0], ipv6: ${setting} }
kubernetes: { pod_cidrs: [10.244.0.0/16, "fd00:10:244::/56"] }
`;
    expect(parse(yaml('enforce')).kubernetes).toMatchObject({
      ipv6: true,
      podNetworks: [
        { address: 0x0af4_0000, length: 16 },
        { address: 0xfd00_0010_0244n << 80n, length: 56 },
      ],
    });
    expect(problemsOf(yaml('drop'))).toEqual([
      'invalid_value weir.yaml:3:15: kubernetes.pod_cidrs: must not have IPv6 networks without dataplane.ipv6: enforce',
    ]);
  });

  it('a configuration file is refused with the line and column of a syntax error or of a repeated key', () => {
    expect(problemsOf('version: 1\napi: {listen')[0]).toMatch(/^syntax weir\.yaml:2:\d+: /);
    expect(problemsOf('version: 1\nversion: 1')).toEqual(['syntax weir.yaml:2:1: Map keys must be unique']);
    expect(problemsOf('just text')).toEqual(['invalid_value weir.yaml: must be a section with keys']);
  });

  it('a configuration file that cannot be read is named in the error message', () => {
    expect(() => loadConfig('/no/such/file.yaml', {})).toThrow(/^\/no\/such\/file\.yaml: no such file or directory$/);
  });

  describe('environment variables', () => {
    it('a configuration file gets the value of each referenced environment variable, except for escaped references', () => {
      const yaml = `version: 1
node:
  id: "\${ZONE}-\${N}"
  data_dir: /d/$\${N}/\${N}
dataplane:
  interfaces: ["\${IF}"]
  flow_capacity: \${N}000
`;
      const { node, dataplane } = parse(yaml, { ZONE: 'eu', N: '2', IF: 'lan0' });
      expect(node).toEqual({ id: 'eu-2', dataDir: `/d/$\{N}/2` });
      expect(dataplane).toMatchObject({ interfaces: ['lan0'], flowCapacity: 2000 });
    });

    it('a configuration file is refused with one problem for each referenced environment variable that is not set', () => {
      expect(problemsOf(`version: 1\nnode:\n  id: $\{ZONE}-$\{ID}`)).toEqual([
        'unset_variable weir.yaml:3:7: the environment variable ZONE is not set',
        'unset_variable weir.yaml:3:7: the environment variable ID is not set',
      ]);
    });

    it('a variable WEIR_SECTION__KEY overrides the configuration file; a list value is split at commas, a missing section is added', () => {
      const config = parse('version: 1\napi: { listen: 127.0.0.1:1 }', {
        WEIR_API__LISTEN: '127.0.0.1:2',
        WEIR_POLICY__FALLBACK: 'allow',
        WEIR_DATAPLANE__INTERFACES: 'lan0, wan*',
        WEIR_DATAPLANE__POLICE_LOCAL: 'false',
        WEIR_DATAPLANE__MARK_MASK: '0x00f00000',
        WEIR_TOKEN: 'unrelated',
        WEIR_SERVER: 'unrelated',
      });
      expect(config).toEqual({
        ...defaults,
        api: { ...defaults.api, listen: { host: '127.0.0.1', port: 2 } },
        policy: { ...defaults.policy, fallback: 'allow' },
        dataplane,
      });
    });

    it('a configuration is refused if a variable overrides an unknown key or has an invalid value; the problem names the variable', () => {
      expect(
        problemsOf('version: 1', {
          WEIR_API__LSTEN: 'x',
          WEIR_API__TLS: 'x',
          WEIR_POLICY__FALLBACK: 'permit',
          WEIR_DATAPLANE__INTERFACES: 'lan0,lan0',
        }),
      ).toEqual([
        'unknown_key WEIR_API__LSTEN: api.lsten: there is no such key',
        'unknown_key WEIR_API__TLS: api.tls: there is no such key',
        'invalid_value WEIR_DATAPLANE__INTERFACES: dataplane.interfaces: names an interface twice',
        'invalid_value WEIR_POLICY__FALLBACK: policy.fallback: must be one of allow, deny',
      ]);
    });
  });

  it('a configuration file is refused if the webhook URL is not HTTP(S), has credentials or a fragment, or if the secret file is missing', () => {
    const urls = [
      'ftp://a.example',
      'https://u:p@a.example/',
      'https://a.example/#x',
      'a.example',
      'https://a.example/x?y',
    ];
    expect(
      urls.flatMap((url) =>
        problemsOf(`version: 1\nfindings: { webhook: { url: "${url}", secret_file: /nonexistent } }`),
      ),
    ).toEqual([
      ...urls
        .slice(0, 4)
        .map(
          () =>
            'invalid_value weir.yaml:2:29: findings.webhook.url: must be a URL of http or https without credentials, such as https://siem.example/weir',
        ),
      'file_missing weir.yaml:2:67: findings.webhook.secret_file: /nonexistent: no such file or directory',
    ]);
  });

  it.each(['0.0.0.0:8080', '192.0.2.1:8080', '[::]:8080', 'weir.example.com:8080', '128.0.0.1:80'])(
    'a configuration file is refused if the API listens without TLS on an address other than loopback: %s',
    (listen) => {
      const host = listen.replace(/:\d+$/, '').replace(/[[\]]/g, '');
      expect(problemsOf(`version: 1\napi: { listen: "${listen}" }`)).toEqual([
        `insecure_bind weir.yaml:2:16: api.listen: ${host} is not a loopback address, and there is no api.tls: clients would send tokens without encryption`,
      ]);
    },
  );

  it.each(['127.0.0.1:8080', '127.9.9.9:0', '[::1]:8080', 'localhost:8080'])(
    'a configuration file is accepted if the API listens without TLS on the loopback address %s',
    (listen) => {
      expect(problemsOf(`version: 1\napi: { listen: "${listen}" }`)).toEqual([]);
    },
  );

  it.each(['127.0.0.1', ':8080', '127.0.0.1:65536', '256.0.0.1:80', '::1:80', '[127.0.0.1]:80', 'a b:80', '1.2.3:80'])(
    'a configuration file is refused if the listen address of the API is malformed: %s',
    (listen) => {
      expect(problemsOf(`version: 1\napi: { listen: "${listen}" }`)).toEqual([
        'invalid_value weir.yaml:2:16: api.listen: must be `host:port`, such as 127.0.0.1:8080',
      ]);
    },
  );

  it.each(['0.0.0.0:19649', '192.0.2.1:80', '[::]:19649', '[2001:db8::1]:19649'])(
    'a configuration file is accepted if metrics.listen is %s without TLS',
    (listen) => {
      expect(problemsOf(`version: 1\nmetrics: { listen: "${listen}" }`)).toEqual([]);
    },
  );

  it.each(['weir.example.com:19649', 'localhost:19649', '19649', ':19649'])(
    'a configuration file is refused if metrics.listen is not an IP address with a port: %s',
    (listen) => {
      expect(problemsOf(`version: 1\nmetrics: { listen: "${listen}" }`)).toEqual([
        'invalid_value weir.yaml:2:20: metrics.listen: must be `address:port`, such as 10.1.0.1:53',
      ]);
    },
  );

  it('a configuration file is refused if metrics.tls is given without metrics.listen', () => {
    const pem = new URL('../../package.json', import.meta.url).pathname;
    expect(problemsOf(`version: 1\nmetrics: { tls: { cert: ${pem}, key: ${pem} } }`)[0]).toBe(
      'invalid_value weir.yaml:2:12: metrics.tls: must not be given without metrics.listen',
    );
  });

  it.each([
    ['127.0.0.1:8080', '127.0.0.1:8080', true],
    ['127.0.0.1:8080', '0.0.0.0:8080', true],
    ['127.0.0.1:8080', '[::]:8080', true],
    ['[::1]:8080', '[::1]:8080', true],
    ['[::1]:8080', '[0:0:0:0:0:0:0:1]:8080', true],
    ['[::1]:8080', '[::]:8080', true],
    ['[::1]:8080', '0.0.0.0:8080', false],
    ['[::1]:8080', '[::ffff:0.0.0.0]:8080', false],
    ['127.0.0.1:8080', '[::ffff:127.0.0.1]:8080', true],
    ['127.0.0.1:8080', '[::ffff:7f00:1]:8080', true],
    ['127.0.0.1:8080', '[::ffff:0.0.0.0]:8080', true],
    ['localhost:8080', '127.0.0.1:8080', true],
    ['localhost:8080', '[::1]:8080', true],
    ['localhost:8080', '[::ffff:127.0.0.1]:8080', true],
    ['localhost:8080', '0.0.0.0:8080', true],
    ['localhost:8080', '127.0.0.2:8080', false],
    ['127.0.0.1:8080', '[fe80::1%lan0]:8080', false],
    ['127.0.0.1:8080', '192.0.2.1:8080', false],
    ['127.0.0.1:8080', '0.0.0.0:8081', false],
    ['127.0.0.1:0', '127.0.0.1:0', false],
  ])('a configuration file is refused if api.listen is %s, and metrics.listen is %s: %s', (api, metrics, isRefused) => {
    expect(problemsOf(`version: 1\napi: { listen: "${api}" }\nmetrics: { listen: "${metrics}" }`)).toEqual(
      isRefused ? [`invalid_value weir.yaml:3:20: metrics.listen: is an address that api.listen uses (${api})`] : [],
    );
  });

  it('a configuration file is refused if two other listeners of the node share an address', () => {
    const text = `version: 1
api: { listen: "127.0.0.1:8080" }
dns: { listen: ["10.1.0.1:53", "10.1.0.1:53"], upstreams: ["192.0.2.1:53"] }
service_plane: { listen: "127.0.0.1:8080" }
metrics: { listen: "0.0.0.0:7946" }
cluster: { etcd: { endpoints: ["http://a:2379"] }, peer: { listen: "10.1.0.1:7946", advertise: "10.1.0.1:7946" } }
`;
    expect(problemsOf(text)).toEqual([
      'invalid_value weir.yaml:4:26: service_plane.listen: is an address that api.listen uses (127.0.0.1:8080)',
      'invalid_value weir.yaml:3:32: dns.listen.1: is an address that dns.listen.0 uses (10.1.0.1:53)',
      'invalid_value weir.yaml:5:20: metrics.listen: is an address that cluster.peer.listen uses (10.1.0.1:7946)',
    ]);
  });

  it('a configuration file is refused if a DNS listener has an IPv6 address with a zone or with an IPv4 address in it, if a DNS upstream has a zone, or if a `rebind_allow` name is malformed', () => {
    const text = `version: 1
dns:
  listen: ["[fe80::1%eth0]:53", "[::ffff:192.0.2.1]:53", "[::1]:53"]
  upstreams: ["[2001:db8::1]:53", "[fe80::1%eth0]:53"]
  rebind_allow: ["*.a.*", "ok.example"]
`;
    expect(problemsOf(text)).toEqual([
      'invalid_value weir.yaml:3:12: dns.listen.0: must be an address without a zone that is not IPv4-mapped',
      'invalid_value weir.yaml:3:33: dns.listen.1: must be an address without a zone that is not IPv4-mapped',
      'invalid_value weir.yaml:4:35: dns.upstreams.1: must be an address without a zone',
      'invalid_value weir.yaml:5:18: dns.rebind_allow.0: must be a name, or `*.` before a name',
    ]);
  });

  it.each([
    ['', false],
    ['dataplane: { interfaces: [lan0] }', false],
    ['dataplane: { interfaces: [lan0], ipv6: pass }', false],
    ['dataplane: { interfaces: [lan0], ipv6: enforce }', true],
  ])('a configuration file with an IPv6 address in dns.listen and with %j is valid: %s', (dataplane, isValid) => {
    const text = `version: 1
dns: { listen: ["10.1.0.1:53", "[2001:db8::1]:53"], upstreams: ["192.0.2.53:53"] }
${dataplane}
`;
    const message = 'is an IPv6 address, which needs dataplane.ipv6: enforce';
    expect(problemsOf(text)).toEqual(isValid ? [] : [`invalid_value weir.yaml:2:32: dns.listen.1: ${message}`]);
  });

  it('a configuration file is refused if a TLS file is missing, or if `dns.min_grant` is longer than `dns.max_grant`', () => {
    expect(
      problemsOf(`version: 1
api: { tls: { cert: /no/cert.pem, key: /no/key.pem } }
dataplane: { interfaces: [lan0] }
dns: { listen: ["10.1.0.1:53"], upstreams: ["192.0.2.53:53"], min_grant: 2h, max_grant: 1h }
`),
    ).toEqual([
      'invalid_value weir.yaml:4:74: dns.min_grant: must not be longer than dns.max_grant',
      'file_missing weir.yaml:2:21: api.tls.cert: /no/cert.pem: no such file or directory',
      'file_missing weir.yaml:2:40: api.tls.key: /no/key.pem: no such file or directory',
    ]);
  });

  describe('cluster section', () => {
    const clusterFolder = mkdtempSync(join(tmpdir(), 'weir-test-'));
    afterAll(() => rmSync(clusterFolder, { recursive: true, force: true }));
    const [pem, text] = [join(clusterFolder, 'any.pem'), join(clusterFolder, 'text')];
    writeFileSync(pem, CERTIFICATE + KEY);
    writeFileSync(text, 'text');
    const mutual = `{ ca: ${pem}, cert: ${pem}, key: ${pem} }`;
    const cluster = (...etcd: readonly string[]): string =>
      ['version: 1', 'cluster:', `  peer: { listen: 0.0.0.0:1, advertise: a:1, tls: ${mutual} }`, '  etcd:', ...etcd]
        .map((line, at) => (at < 4 ? line : `    ${line}`))
        .join('\n');

    it('a cluster configuration has no etcd user and no TLS towards etcd by default', () => {
      expect(parse(cluster('endpoints: ["http://10.0.0.1:2379"]')).cluster?.etcd).toEqual({
        endpoints: ['http://10.0.0.1:2379'],
        tls: null,
        user: null,
      });
    });

    it('a cluster configuration is refused if only one of `user` and `password_file` of etcd is given, or if the password file is missing', () => {
      const at = (...lines: readonly string[]) => problemsOf(cluster('endpoints: ["http://a:2379"]', ...lines));
      expect(at('user: weir')).toEqual([
        'invalid_value weir.yaml:6:11: cluster.etcd.user: must not be given without cluster.etcd.password_file',
      ]);
      expect(at(`password_file: ${pem}`)).toEqual([
        'invalid_value weir.yaml:6:20: cluster.etcd.password_file: must not be given without cluster.etcd.user',
      ]);
      expect(at('user: weir', 'password_file: /no/password')).toEqual([
        'file_missing weir.yaml:7:20: cluster.etcd.password_file: /no/password: no such file or directory',
      ]);
      expect(at('user: ""', 'password_file: ""')).toEqual([
        'invalid_value weir.yaml:6:11: cluster.etcd.user: must not be empty',
        'invalid_value weir.yaml:7:20: cluster.etcd.password_file: must not be empty',
      ]);
    });

    it.each([
      ['etcd', 6, (tls: string) => cluster('endpoints: ["https://a:2379"]', `tls: ${tls}`)],
      ['peer', 3, (tls: string) => cluster('endpoints: ["http://a:2379"]').replace(mutual, tls)],
    ] as const)(
      'a cluster configuration is refused if the files of the TLS section of %s are not PEM',
      (name, line, withTls) => {
        const refused = problemsOf(withTls(`{ ca: ${text}, cert: ${text}, key: ${text} }`));
        expect(refused.map((problem) => problem.replace(/:\d+: /, ': '))).toEqual([
          `invalid_value weir.yaml:${line}: cluster.${name}.tls.ca: ${text} contains no certificate in PEM`,
          `invalid_value weir.yaml:${line}: cluster.${name}.tls.cert: ${text} contains no certificate in PEM`,
          `invalid_value weir.yaml:${line}: cluster.${name}.tls.key: ${text} contains no private key in PEM without a passphrase`,
        ]);
      },
    );

    it('a cluster configuration is refused if the endpoints of etcd mix http and https, or contradict `tls`', () => {
      const at = (...lines: readonly string[]) => problemsOf(cluster(...lines));
      expect(at('endpoints: ["https://a:2379", "http://b:2379"]', `tls: ${mutual}`)).toEqual([
        'invalid_value weir.yaml:5:5: cluster.etcd.endpoints: must be all https or all http',
      ]);
      expect(at('endpoints: ["HTTPS://a:2379", "https://b:2379"]')).toEqual([
        'invalid_value weir.yaml:5:5: cluster.etcd.endpoints: must not be https without cluster.etcd.tls',
      ]);
      expect(at('endpoints: ["http://a:2379"]', `tls: ${mutual}`)).toEqual([
        'invalid_value weir.yaml:6:5: cluster.etcd.tls: must not be given if cluster.etcd.endpoints are http',
      ]);
      expect(at('endpoints: ["https://a:2379", "HTTPS://b:2379"]', `tls: ${mutual}`)).toEqual([]);
    });
  });

  it.each([
    ['api', '127.0.0.1:8080'],
    ['metrics', '0.0.0.0:19649'],
  ])(
    'a configuration file is refused if the certificate or key of %s.tls is not PEM, or if the key does not match',
    (section, listen) => {
      const folder = temporaryFolder();
      const file = (name: string, text: string): string => {
        const path = join(folder, name);
        writeFileSync(path, text);
        return path;
      };
      const [cert, key, text] = [file('cert.pem', CERTIFICATE), file('key.pem', KEY), file('text', 'text')];
      const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const other = file('other.pem', String(privateKey.export({ type: 'pkcs8', format: 'pem' })));
      const locked = file(
        'locked.pem',
        String(privateKey.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'p' })),
      );
      const told = (certificate: string, itsKey: string): string[] =>
        problemsOf(
          `version: 1\n${section}:\n  listen: ${listen}\n  tls:\n    cert: ${certificate}\n    key: ${itsKey}\n`,
        );
      expect(told(cert, key)).toEqual([]);
      expect(told(text, text)).toEqual([
        `invalid_value weir.yaml:5:11: ${section}.tls.cert: ${text} contains no certificate in PEM`,
        `invalid_value weir.yaml:6:10: ${section}.tls.key: ${text} contains no private key in PEM without a passphrase`,
      ]);
      expect(told(cert, locked)).toEqual([
        `invalid_value weir.yaml:6:10: ${section}.tls.key: ${locked} contains no private key in PEM without a passphrase`,
      ]);
      expect(told(cert, other)).toEqual([
        `invalid_value weir.yaml:6:10: ${section}.tls.key: ${other} is not the key of the certificate in ${cert}`,
      ]);
    },
  );

  it.each([
    ['99ms', false],
    ['100ms', true],
    ['10m', true],
    ['11m', false],
    ['5', false],
    ['1.5s', false],
    ['5 s', false],
    ['-5s', false],
    ['5d', false],
  ])('a configuration file with the text "%s" as policy.activation_timeout is valid: %s', (value, taken) => {
    expect(problemsOf(`version: 1\npolicy: { activation_timeout: "${value}" }`).length).toBe(taken ? 0 : 1);
  });

  it.each([
    ['1MiB', true],
    ['1TiB', true],
    ['1024GiB', true],
    ['1024KiB', true],
    ['1023KiB', false],
    ['2TiB', false],
    ['1GB', false],
    ['1073741824', false],
    ['1.5GiB', false],
    [' 1GiB', false],
  ])('a configuration file with the text "%s" as policy.history.bytes is valid: %s', (value, taken) => {
    expect(problemsOf(`version: 1\npolicy: { history: { bytes: "${value}" } }`).length).toBe(taken ? 0 : 1);
  });

  it('the configuration file examples/weir.yaml is valid', () => {
    const example = new URL('../../examples/weir.yaml', import.meta.url).pathname;
    expect(loadConfig(example, {})).toEqual({
      ...defaults,
      node: { id: 'gateway-1', dataDir: '/var/lib/weir' },
      kubernetes: { ...defaults.kubernetes, nodeName: 'gateway-1' },
      dataplane: { ...dataplane, interfaces: ['lan0', 'wan0'] },
    });
    expect(readFileSync(example, 'utf8')).toContain('docs/configuration.md');
  });

  it('a configuration file is refused if a reference to a variable inside braces or brackets is not in quotes', () => {
    for (const [yaml, where] of [
      [`version: 1\nnode: { id: \${X} }`, '2:14'],
      [`version: 1\ndataplane:\n  interfaces: [\${X}, b]`, '3:17'],
    ] as const) {
      expect(problemsOf(yaml)).toEqual([
        `syntax weir.yaml:${where}: inside { } and [ ] a variable needs quotes: "\${X}"`,
      ]);
    }
  });

  it('a configuration file is refused if `dataplane.pin_path` exists outside a BPF file system', () => {
    const at = (path: string) => problemsOf(`version: 1\ndataplane: { interfaces: [a], pin_path: ${path} }`);
    expect(at('/tmp')).toEqual([
      'invalid_value weir.yaml:2:41: dataplane.pin_path: /tmp is not in a BPF file system, such as /sys/fs/bpf',
    ]);
    expect(at('/no/such/folder')).toEqual([]);
  });
});
