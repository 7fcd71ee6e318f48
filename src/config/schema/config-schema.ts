import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { z } from 'zod';
import { ipv4MappedBy, parseAddress } from '#addresses/ip-address.js';
import {
  absolutePath,
  byteSize,
  duration,
  flag,
  fraction,
  interfacePattern,
  ipv4Prefix,
  listenAddress,
  mask,
  namePattern,
  oneOf,
  path,
  text,
  url,
  webUrl,
  whole,
} from '#config/value.js';
import { kubernetesSchema } from './kubernetes-schema.js';

const mutualTls = (peer: string) =>
  z.strictObject({
    ca: path(`PEM file with the CA certificates that must have signed the certificate of the ${peer}.`),
    cert: path('PEM file with the certificate chain of this node.'),
    key: path('PEM file with the private key of this node.'),
  });

const serverTls = (about: string) =>
  z
    .strictObject({
      cert: path('PEM file with the certificate chain.'),
      key: path('PEM file with the private key.'),
    })
    .nullable()
    .prefault(null)
    .meta({ description: about });

const node = z
  .strictObject({
    id: text('Name of this node in findings, in the cluster and in logs.').prefault(hostname).meta({
      description: 'Name of this node in findings, in the cluster and in logs.',
      form: 'text',
      shown: 'the host name',
    }),
    data_dir: absolutePath(
      'Folder of the store, of the keys for tokens and for the seal, and of the admin token. The node creates it with mode 0700. It does not start if all users can write to this folder, or to a parent folder without the sticky bit, or if one of them or their content belongs to a user other than root and the user of the process.',
    ).prefault('/var/lib/weir'),
  })
  .prefault({})
  .meta({ description: 'The name and the data folder of this node.' });

const log = z
  .strictObject({
    level: oneOf(
      ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
      'The lowest level that is logged.',
    ).prefault('info'),
    format: oneOf(
      ['auto', 'json', 'pretty'],
      'One JSON object per line (`json`), with `time` in ISO 8601, or formatted text (`pretty`). `auto`: text with priorities if the journal of systemd reads standard output, so that `journalctl -u weir -p warning` selects lines; formatted text on a terminal; JSON otherwise.',
    ).prefault('auto'),
  })
  .prefault({})
  .meta({ description: 'The log, on standard output.' });

const api = z
  .strictObject({
    listen: listenAddress(
      'Address on which the management API listens. Any address other than loopback requires `api.tls`; without it the node does not start.',
    ).prefault('127.0.0.1:8080'),
    tls: serverTls('Serves HTTPS instead of HTTP.'),
    allowed_hosts: z.array(text('A host name.')).prefault([]).meta({
      description: 'Host names under which the API may be called, besides the address of `api.listen` and `localhost`.',
      form: 'list of text',
    }),
    requests_per_second: whole(
      1,
      1_000_000,
      'Requests allowed per client address; further requests get the response 429.',
    ).prefault(500),
    failed_logins_per_minute: whole(
      1,
      10_000,
      'Requests with an invalid token allowed per client address; further requests get the response 429.',
    ).prefault(10),
    request_timeout: duration('1s', '10m', 'Time in which a request must arrive completely.').prefault('15s'),
    max_connections: whole(1, 65_535, 'Maximum number of open connections.').prefault(1000),
    max_connections_per_source: whole(
      1,
      65_535,
      'Maximum number of these connections per client address; the node closes further connections at once. All clients behind a reverse proxy have one address.',
    ).prefault(500),
    console: z.boolean().prefault(true).meta({
      description:
        'Serves the console, a web page, at `/console/`. Its files need no token; the page signs in and uses the management API.',
      form: '`true` or `false`',
    }),
  })
  .prefault({})
  .meta({ description: 'The management API.' });

const idle = (about: string, prefault: string) => duration('1s', '168h', about).prefault(prefault);

const timeouts = z
  .strictObject({
    tcp_opening: idle('A TCP flow before the end of its handshake.', '60s'),
    tcp_established: idle(
      'An established TCP flow. The default is longer than two hours, after which hosts send the first keep-alive.',
      '3h',
    ),
    tcp_half_closed: idle('One side has closed.', '10m'),
    tcp_closing: idle('A TCP flow that both sides have closed, or that one side has reset.', '10s'),
    udp: idle('UDP without a reply.', '30s'),
    udp_replied: idle('UDP with a reply.', '180s'),
    icmp: idle('ICMP queries.', '30s'),
    other: idle('Other protocols.', '10m'),
  })
  .prefault({})
  .meta({ description: 'The time after which the datapath removes a flow without packets.' });

const MAX_TRANSLATED = 16;

const dataplane = z
  .strictObject({
    interfaces: z
      .array(interfacePattern('A name.'))
      .min(1, 'must name at least one interface')
      .refine((names) => new Set(names).size === names.length, { error: 'names an interface twice' })
      .meta({
        description:
          'Interfaces whose incoming traffic is filtered: both sides of a gateway. A name may end with `*`, and can then have no interface for a time. With NAT (masquerade, DNAT), rules name the client and the server, not the addresses of the gateway. Ports of a bridge make the node a transparent firewall (docs/design/bridges.md). An interface that loses a matching name stays policed, and fails the check `dataplane_config`, until `weir config reload --allow-unpoliced`.',
        form: 'list of interface names of at most 15 characters',
      }),
    ipv6: oneOf(
      ['drop', 'pass', 'enforce'],
      'The action for forwarded IPv6, also between bridge ports. `enforce`: the policy decides, and may have IPv6 addresses. Without it, no policy decides IPv6, and a policy with IPv6 addresses is refused. Neighbour discovery always passes. IPv6 to and from the node itself passes unless `police_local` is set. All nodes of a cluster need the same value.',
    ).prefault('drop'),
    router_ports: z.array(interfacePattern('A name.')).prefault([]).meta({
      description:
        'Policed bridge ports behind which IPv6 routers and DHCPv6 servers are. With `ipv6: enforce`, router advertisements, redirects and messages of DHCPv6 servers from other bridge ports are dropped (RFC 6105, RFC 7610).',
      form: 'list of interface names, with `*` at the end of a name',
    }),
    non_ipv4: oneOf(
      ['drop', 'pass'],
      'The action for frames that are neither IPv4, IPv6 nor ARP, also between bridge ports. Spanning tree frames always pass, and VLAN tags are dropped.',
    ).prefault('drop'),
    reverse_path: oneOf(
      ['strict', 'loose', 'off'],
      'Whether the route to the source of a packet must lead through the interface on which the packet arrived (`strict`), through any interface (`loose`), or is not checked (`off`). ' +
        'On interfaces that do not forward, `rp_filter` of the network stack applies to IPv4 instead. ' +
        'On a bridge port, the route must lead through the bridge.',
    ).prefault('strict'),
    police_local: flag(
      'Whether packets to and from the node itself are filtered too, if they arrive or leave on one of `interfaces`.',
    ).prefault(false),
    translated: z
      .array(ipv4Prefix('A range of addresses.'))
      .max(MAX_TRANSLATED, `has more than ${MAX_TRANSLATED} ranges`)
      .prefault([])
      .meta({
        description:
          'Ranges of service addresses that this node translates to servers, such as the service range of kube-proxy. The policy decides packets to them by the server alone. Without an entry, the policy must allow both the service address and the server.',
        form: `list of at most ${MAX_TRANSLATED} IPv4 networks`,
      }),
    forwarding: oneOf(
      ['auto', 'stack', 'direct'],
      'How passed packets are forwarded. `stack`: by the network stack. `direct`: to the interface of the route, which bypasses netfilter and IPsec. `auto`: direct while no third-party hook (nftables, iptables, tc, IPsec) processes forwarded packets, otherwise by the stack. While NAT is the only such hook, established flows are translated and sent directly. The node detects changes of nftables and tc at once, and other changes within three seconds.',
    ).prefault('auto'),
    pickup: duration(
      '0s',
      '1h',
      'The time after the first attach during which a TCP packet in the middle of a connection is evaluated as if it opened the connection.',
    ).prefault('120s'),
    flow_capacity: whole(
      1024,
      16_777_216,
      'Minimum number of flows that the flow table can hold; with `ipv6: enforce`, each family has such a table. Flows without a reply use free entries, and new flows replace them. Flows with a reply stay; a table that is full of them refuses new flows.',
    ).prefault(131_072),
    flow_share: fraction(
      0.001,
      1,
      'The share of `flow_capacity` that the established flows of one source address may use once the table is half full. The limit shrinks with the free space. Above it, new flows of that source are refused; its established flows stay. `1`: no limit. Raise the share if one address represents many clients.',
    ).prefault(0.125),
    program_capacity: whole(
      8_192,
      8_388_608,
      'The number of 64-byte cache lines that a compiled policy may use; a write that needs more is refused. Its two tables grow from 8192 lines to 65536, 524288, 4194304 and 8388608 if a policy needs it, and then take 8, 64, 512 or 1024 MiB together.',
    ).prefault(4_194_304),
    timeouts,
    grant_capacity: whole(
      1024,
      4_194_304,
      'Maximum number of addresses of each IP family that the node learns for hostname rules. Further addresses are not learned and stay denied.',
    ).prefault(262_144),
    mark_mask: mask(2, 'Bits of the packet mark that Weir uses. All other bits are kept.').prefault(0x00f0_0000).meta({
      description: 'Bits of the packet mark that Weir uses. All other bits are kept.',
      form: '32-bit mask with 2 bits or more',
      shown: '`0x00f00000`',
    }),
    pin_path: absolutePath('Folder in a BPF file system in which programs, links and maps are pinned.').prefault(
      '/sys/fs/bpf/weir',
    ),
  })
  .optional()
  .meta({ description: 'Enforcement in the kernel. Without this section policies are stored but not enforced.' });

const policy = z
  .strictObject({
    fallback: oneOf(
      ['allow', 'deny'],
      'Verdict if the policy has no `default_policy`, or if no policy is active.',
    ).prefault('deny'),
    activation_timeout: duration(
      '100ms',
      '10m',
      'If a policy cannot be activated within this time, the write is abandoned with the response 503.',
    )
      .optional()
      .meta({
        description:
          'If a policy cannot be activated within this time, the write is abandoned with the response 503. The default is 5s; in a cluster, it is 15s.',
        form: 'duration, 100ms to 10m',
        shown: '5s or 15s',
      }),
    file: path('YAML or JSON file that the node loads as the policy, at its start and whenever the file changes.')
      .nullable()
      .prefault(null)
      .meta({
        description: 'YAML or JSON file that the node loads as the policy, at its start and whenever the file changes.',
        form: 'path or `null`',
      }),
    assertions_file: path(
      'YAML or JSON file with assertions. The node replaces all assertions by those of the file at its start and whenever the file changes, and before it loads `policy.file`.',
    )
      .nullable()
      .prefault(null)
      .meta({
        description:
          'YAML or JSON file with assertions. The node replaces all assertions by those of the file at its start and whenever the file changes, and before it loads `policy.file`.',
        form: 'path or `null`',
      }),
    history: z
      .strictObject({
        revisions: whole(
          10,
          1_000_000,
          'Number of revisions of a policy that are kept. The last ten of each policy, the active ones and the former policy of a pending change stay always. In a cluster, the setting of the leader counts.',
        ).prefault(1_000),
        bytes: byteSize(
          '1MiB',
          '1TiB',
          'Size of what the kept revisions of all policies have added to the store, compressed. Beyond it, the oldest revisions are removed. In a cluster, the setting of the leader counts.',
        ).prefault('1GiB'),
      })
      .prefault({})
      .meta({ description: 'The revisions of policies that the node keeps.' }),
  })
  .prefault({})
  .meta({ description: 'How policies are activated, and how many revisions are kept.' });

const isIpv4 = ({ host }: { readonly host: string }): boolean => isIP(host) === 4;
const NOT_IPV4 = 'must be an IPv4 address';
const isPlain = ({ host }: { readonly host: string }): boolean => {
  const address = parseAddress(host);
  return address !== undefined && ipv4MappedBy({ address, length: 128 }) === undefined;
};
const NOT_PLAIN = 'must be an address without a zone that is not IPv4-mapped';
const hasNoZone = ({ host }: { readonly host: string }): boolean => !host.includes('%');
const ZONE = 'must be an address without a zone';

const dns = z
  .strictObject({
    listen: z
      .array(listenAddress('An address.', { addressOnly: true }).refine(isPlain, { error: NOT_PLAIN }))
      .min(1, 'must have at least one address')
      .meta({
        description:
          'Addresses on which the DNS proxy listens, on UDP and TCP. An IPv6 address needs `dataplane.ipv6: enforce`.',
        form: 'list of `address:port` or `[address]:port`',
      }),
    upstreams: z
      .array(listenAddress('An address.', { addressOnly: true }).refine(hasNoZone, { error: ZONE }))
      .min(1, 'must have at least one address')
      .meta({
        description: 'Resolvers for allowed names, by IPv4 or IPv6.',
        form: 'list of `address:port` or `[address]:port`',
      }),
    transparent: flag('Whether the proxy also receives DNS queries that clients send to other resolvers.').prefault(
      false,
    ),
    denied_response: oneOf(['nxdomain', 'refused'], 'Response code for a denied name.').prefault('nxdomain'),
    min_grant: duration('1s', '24h', 'Minimum time for which a learned address is granted.').prefault('60s'),
    max_grant: duration('1s', '24h', 'Maximum time for which a learned address is granted.').prefault('24h'),
    upstream_order: oneOf(
      ['listed', 'fastest'],
      'Which responding upstream is queried first: the first in the list (`listed`), or the upstream with the lowest recent response time (`fastest`). If it does not respond within 0.4 s, the next upstream is queried.',
    ).prefault('listed'),
    cache_size: whole(1, 4_096, 'Size of the answer cache in MiB. Answers are kept for their TTL.').prefault(64),
    serve_stale: duration(
      '0s',
      '72h',
      'How long after its expiry a cached answer is served if no upstream responds (RFC 8767). `0s`: never.',
    ).prefault('0s'),
    rebind_protection: flag(
      'Rebind protection. The proxy removes addresses that the IANA registry of special-purpose addresses (RFC 6890) does not list as globally reachable, such as 10.0.0.0/8, from answers for public names: all but those under `internal`, `local` and `home.arpa`. It removes the addresses of the node and loopback, link-local, multicast and reserved addresses from all answers. Each removal is a finding, and the client receives an extended DNS error.',
    ).prefault(true),
    rebind_allow: z.array(namePattern('A name.')).prefault([]).meta({
      description:
        'Names that may have special-purpose addresses. Addresses of the node and loopback, link-local, multicast and reserved addresses are removed also for these names.',
      form: 'list of names, or of names after `*.`',
    }),
    canary_names: z
      .array(namePattern('A name.'))
      .prefault([
        'use-application-dns.net',
        'mask.icloud.com',
        'mask-h2.icloud.com',
        'mask-canary.icloud.com',
        'dns-tunnel-check.googlezip.net',
      ])
      .meta({
        description:
          'Names that browsers and systems look up to learn whether the network filters. The proxy answers them with NXDOMAIN, before the policy and without an upstream (docs/names.md).',
        form: 'list of names, or of names after `*.`',
      }),
  })
  .optional()
  .meta({
    description:
      'The DNS proxy. A client that looks up an allowed name through the proxy may connect to the addresses of the name. Without this section, rules with a hostname match nothing.',
  });

const servicePlane = z
  .strictObject({
    listen: listenAddress(
      'Address of this node to which the datapath redirects connections of IPv4. No other service may use it. With `dataplane.ipv6: enforce`, the service plane also listens at 100::443, with the same port.',
      {
        addressOnly: true,
      },
    )
      .refine(isIpv4, { error: NOT_IPV4 })
      .prefault('127.0.0.1:15001'),
    workers: whole(1, 64, 'Number of inspection threads. Each connection belongs to one thread.').prefault(2),
    max_connections: whole(
      16,
      1_000_000,
      'Maximum number of connections per thread. Further connections are reset; in audit mode, up to the same number again pass without inspection.',
    ).prefault(32_768),
    max_connections_per_source: whole(
      1,
      1_000_000,
      'Maximum number of simultaneous connections of one source address per thread, within `max_connections`; the kernel distributes connections evenly over `workers`. Further connections are treated like connections above `max_connections`. Clients behind one translated address are one source.',
    ).prefault(4_096),
    upstream_ca: text(
      'The CA certificates that the node trusts for servers, in each mode of TLS rules: `system`, or a PEM file.',
    )
      .prefault('system')
      .meta({
        description:
          'The CA certificates that the node trusts for servers, in each mode of TLS rules: `system`, or a PEM file.',
        form: '`system` or path',
      }),
    denied_http: z
      .union([z.literal(403), z.literal('403'), z.literal('reset')], { error: 'must be one of 403, reset' })
      .transform((value) => (value === 'reset' ? 'reset' : '403'))
      .prefault('403')
      .meta({ description: 'Response to a denied HTTP request.', form: '`403` or `reset`' }),
  })
  .optional()
  .meta({
    description:
      'TLS and HTTP inspection: the service plane decides connections that match a TLS rule by their TLS and HTTP attributes. Without this section, these connections fail.',
  });

const cluster = z
  .strictObject({
    etcd: z
      .strictObject({
        endpoints: z
          .array(url('A URL.'))
          .min(1, 'must have at least one URL')
          .meta({ description: 'The members of etcd. All URLs are `https`, or all are `http`.', form: 'list of URLs' }),
        tls: mutualTls('members of etcd')
          .nullable()
          .prefault(null)
          .meta({ description: 'Mutual TLS towards etcd. Required for `https`, not allowed for `http`.' }),
        user: text('A name.').nullable().prefault(null).meta({
          description:
            'Name with which the node logs in to etcd. Requires `password_file`. Without it, the node does not log in; etcd can take the name from the client certificate.',
          form: 'text or `null`',
        }),
        password_file: path('A file.').nullable().prefault(null).meta({
          description: 'File with the password of `user`. Requires `user`.',
          form: 'path or `null`',
        }),
      })
      .meta({ description: 'How the node reaches etcd.' }),
    peer: z
      .strictObject({
        listen: listenAddress('Address of the peer listener, on which other nodes reach this node.'),
        advertise: listenAddress('Address that is announced to other nodes.'),
        tls: mutualTls('other nodes').nullable().prefault(null).meta({
          description:
            'Certificates of your own CA for connections between nodes. The node uses a renewed file within a minute. Without this section, each node makes a certificate of its own and announces its fingerprint through etcd.',
        }),
      })
      .meta({ description: 'How the nodes reach each other.' }),
    prefix: z
      .string()
      .regex(/^\/[^\s]*[^\s/]$/, 'must begin with / and must not end with it')
      .prefault('/weir')
      .meta({ description: 'Prefix of every key in etcd.', form: 'text' }),
    seal_key_file: path('File of the key that seals the intercept CA.').nullable().prefault(null).meta({
      description:
        'File with the key that seals the intercept CA: 32 random bytes in base64, readable only by the user of the process. Without it, the CA stays on this node, sealed with `seal.key` in the data folder.',
      form: 'path or `null`',
    }),
  })
  .optional()
  .meta({
    description: 'Several nodes with one policy on etcd, see docs/cluster.md. Without this section, the node is alone.',
  });

const findings = z
  .strictObject({
    retention: duration('1m', '3650d', 'How long a finding is kept after it was last seen.').prefault('30d'),
    max_entries: whole(
      1_000,
      10_000_000,
      'Maximum number of findings. Above it, the findings that were last seen longest ago are removed.',
    ).prefault(100_000),
    file: z
      .strictObject({
        path: absolutePath(
          'The file, with mode 0600. Full files are renamed to `path.1`, `path.2` and so on; `path.1` is the newest.',
        ),
        max_size: whole(1, 4_096, 'Size in MiB at which a new file is started.').prefault(64),
        keep: whole(1, 1_000, 'Number of full files that are kept.').prefault(5),
      })
      .nullable()
      .prefault(null)
      .meta({ description: 'Writes every change of a finding to a file, one JSON object per line.' }),
    webhook: z
      .strictObject({
        url: webUrl('URL to which changes are sent, by POST as a JSON array. Redirects are not followed.'),
        secret_file: path(
          'File with the secret that signs requests; the header `Weir-Signature` contains the signature.',
        ),
        timeout: duration('100ms', '60s', 'Time limit of one request.').prefault('5s'),
      })
      .nullable()
      .prefault(null)
      .meta({ description: 'Sends every change of a finding to a URL. The node repeats failed deliveries.' }),
  })
  .prefault({})
  .meta({
    description: 'The record of denies, refused logins and changes of the configuration: see `docs/findings.md`.',
  });

const flowHistory = z
  .strictObject({
    retention: duration(
      '0s',
      '30d',
      'For how long the node remembers which flows it has seen, after it last saw them. The diff of a policy change tells which of them the change affects. `0s`: no flows are recorded, and those of before are forgotten.',
    ).prefault('7d'),
    max_flows: whole(
      1_000,
      1_000_000,
      'Maximum number of flows of each IP family. Above it, the flows that were last seen longest ago are forgotten. One source, of IPv6 a /64 prefix, has at most a sixteenth of them. A flow takes 39 to 49 bytes of memory, of IPv6 63 to 73 bytes.',
    ).prefault(262_144),
  })
  .prefault({})
  .meta({
    description:
      'The record of flows that were seen, by source, destination, protocol and destination port: see `docs/analysis.md`.',
  });

const wiretap = z
  .strictObject({
    replay: duration(
      '0s',
      '10m',
      'The period before the start of a wiretap stream from which a reader can request messages.',
    ).prefault('30s'),
  })
  .prefault({})
  .meta({ description: 'The live view of traffic.' });

const metrics = z
  .strictObject({
    source_groups: whole(
      0,
      1_000,
      'Number of source groups with packets and bytes of their own in `/metrics`, in the order of evaluation, each with six time series. All other groups are added together. `0`: no metrics by source group. Readers of `/metrics`, who need no token, then see the ids of source groups.',
    ).prefault(0),
    listen: listenAddress('An address.', { addressOnly: true }).nullable().prefault(null).meta({
      description:
        'Address of a further listener for scrapes and probes from other machines. It has only `/metrics`, `/health` and `/ready`, and needs no token. Without TLS, plain HTTP is served on any address. See `docs/metrics.md` for what each client sees, and how to limit the clients.',
      form: '`address:port` or `null`',
    }),
    tls: serverTls('Serves HTTPS instead of HTTP on `metrics.listen`.'),
  })
  .prefault({})
  .meta({ description: 'The metrics of the node: see `docs/metrics.md`.' });

/**
 * The schema of the configuration file (D41). `meta` describes each key and section; docs/configuration.md is
 * generated from `meta`.
 */
export const configSchema = z.strictObject({
  version: z
    .union([z.literal(1), z.literal('1')], { error: 'must be 1' })
    .meta({ description: 'Format of this file.', form: '`1`' }),
  node,
  log,
  api,
  dataplane,
  policy,
  dns,
  findings,
  flow_history: flowHistory,
  wiretap,
  metrics,
  service_plane: servicePlane,
  kubernetes: kubernetesSchema,
  cluster,
});

export type ParsedConfig = z.output<typeof configSchema>;
