import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { z } from 'zod';
import {
  absolutePath,
  duration,
  flag,
  fraction,
  interfacePattern,
  listenAddress,
  mask,
  namePattern,
  oneOf,
  path,
  text,
  url,
  webUrl,
  whole,
} from './value.js';

const mutualTls = (peer: string) =>
  z.strictObject({
    ca: path(`PEM file of the authorities that the ${peer} must be signed by.`),
    cert: path('PEM file of this node’s certificate chain.'),
    key: path('PEM file of its private key.'),
  });

const node = z
  .strictObject({
    id: text('Name of this node: in findings, in the cluster, in logs.').prefault(hostname).meta({
      description: 'Name of this node: in findings, in the cluster, in logs.',
      form: 'text',
      shown: 'the host name',
    }),
    data_dir: absolutePath(
      'Folder of the store, the keys of tokens and of the seal, and the admin token. Made with mode 0700. The start is refused if every user can write to it or to a folder above without the sticky bit, or if it, what is in it or a folder above belongs to another user than root and that of the process. A folder that its group can write to is warned of.',
    ).prefault('/var/lib/weir'),
  })
  .prefault({})
  .meta({ description: 'The name of this node and the folder of its data.' });

const log = z
  .strictObject({
    level: oneOf(
      ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
      'The lowest level that is written.',
    ).prefault('info'),
    format: oneOf(['json', 'pretty'], 'One JSON object per line, or lines for people.').prefault('json'),
  })
  .prefault({})
  .meta({ description: 'The log, on standard output.' });

const api = z
  .strictObject({
    listen: listenAddress(
      'Address on which the management API listens. Any address other than loopback requires `api.tls`; without it the node does not start.',
    ).prefault('127.0.0.1:8080'),
    tls: z
      .strictObject({
        cert: path('PEM file of the certificate chain.'),
        key: path('PEM file of the private key.'),
      })
      .nullable()
      .prefault(null)
      .meta({ description: 'Serves HTTPS instead of HTTP.' }),
    allowed_hosts: z.array(text('A host name.')).prefault([]).meta({
      description: 'Host names under which the API may be called, besides the address of `api.listen` and `localhost`.',
      form: 'list of text',
    }),
    requests_per_second: whole(
      1,
      1_000_000,
      'Requests allowed per client address; further ones get the response 429.',
    ).prefault(500),
    failed_logins_per_minute: whole(
      1,
      10_000,
      'Requests with an invalid token allowed per client address; further ones get the response 429.',
    ).prefault(10),
    request_timeout: duration('1s', '10m', 'Time in which a request must arrive completely.').prefault('15s'),
    max_connections: whole(1, 65_535, 'Maximum number of open connections.').prefault(1000),
    max_connections_per_source: whole(
      1,
      65_535,
      'Of these, connections of one client address; one more is closed at once. All clients behind a reverse proxy are one address.',
    ).prefault(500),
  })
  .prefault({})
  .meta({ description: 'The management API.' });

const idle = (about: string, prefault: string) => duration('1s', '168h', about).prefault(prefault);

const timeouts = z
  .strictObject({
    tcp_opening: idle('TCP before the end of its handshake.', '60s'),
    tcp_established: idle('Longer than the two hours after which hosts send their first keep-alive.', '3h'),
    tcp_half_closed: idle('One side has closed.', '10m'),
    tcp_closing: idle('Both sides have closed, or one has reset the connection.', '10s'),
    udp: idle('UDP without a reply.', '30s'),
    udp_replied: idle('UDP with a reply.', '180s'),
    icmp: idle('ICMP queries.', '30s'),
    other: idle('Other protocols.', '10m'),
  })
  .prefault({})
  .meta({ description: 'How long a flow without packets is kept.' });

const dataplane = z
  .strictObject({
    interfaces: z
      .array(interfacePattern('A name.'))
      .min(1, 'must name at least one interface')
      .refine((names) => new Set(names).size === names.length, { error: 'names an interface twice' })
      .meta({
        description:
          'Interfaces whose incoming traffic is filtered. A name may end in `*`. Name both sides of a gateway, but of one that translates addresses (masquerade, DNAT) the inside only: by the outside, what is for an address of the node is not judged, and what becomes of it is not forwarded. NAT beside an outside interface that is named fails `dataplane_config`. Names count at every moment: an interface that gets such a name is policed at once, and one that loses it is not policed any more.',
        form: 'list of interface names of at most 15 characters',
      }),
    non_ipv4: oneOf(
      ['drop', 'pass'],
      'The action for forwarded IPv6 and other EtherTypes. ARP always passes, and so does IPv6 of the node itself without police_local.',
    ).prefault('drop'),
    reverse_path: oneOf(
      ['strict', 'loose', 'off'],
      'Whether a packet’s source must route back through its interface (`strict`), through any (`loose`), or need not. ' +
        'Where the node does not forward, this is left to the stack’s `rp_filter`.',
    ).prefault('strict'),
    police_local: flag(
      'Whether packets to and from the node itself are filtered too, if they come in or go out by one of `interfaces`.',
    ).prefault(false),
    forwarding: oneOf(
      ['auto', 'stack', 'direct'],
      'How what passes goes on: by the network `stack`, or `direct` to the interface that the routes name, which is faster than a node without a filter, and skips netfilter and IPsec. `auto` is direct as long as nobody else has a say in forwarded packets, and follows who comes and goes: nftables and tc at once, everything else within a second, in the worst case within three.',
    ).prefault('auto'),
    pickup: duration(
      '0s',
      '1h',
      'How long after a first attach a TCP packet in the middle of a connection is judged as if it opened it.',
    ).prefault('120s'),
    flow_capacity: whole(
      1024,
      16_777_216,
      'Minimum number of flows that the flow table can hold. Those that nobody has answered yet take what is free, and make room for new ones; the others stay, and a table that is full of them refuses new flows.',
    ).prefault(131_072),
    flow_share: fraction(
      0.001,
      1,
      'Part of `flow_capacity` that the established flows of one source address may take once the table is half full. As the table fills up further, the limit shrinks with what is free, so that many sources together leave room for others. Above it new flows of that source are refused; its established flows stay. `1`: no limit. Raise it where one address stands for many clients.',
    ).prefault(0.125),
    program_capacity: whole(
      8_192,
      8_388_608,
      'Lines of 64 bytes that a policy may take; a write that needs more is refused. Two tables of 8192 lines grow to 65536, 524288, 4194304 and 8388608 as policies need it, and then take 8, 64, 512 and 1024 MiB together.',
    ).prefault(4_194_304),
    timeouts,
    grant_capacity: whole(
      1024,
      4_194_304,
      'Maximum number of addresses that are learned for hostname rules. Further addresses are not learned, and stay denied.',
    ).prefault(262_144),
    mark_mask: mask(2, 'Bits of the packet mark that Weir uses. All other bits are kept.').prefault(0x00f0_0000).meta({
      description: 'Bits of the packet mark that Weir uses. All other bits are kept.',
      form: '32-bit mask with 2 bits or more',
      shown: '`0x00f00000`',
    }),
    pin_path: absolutePath('Folder in a BPF file system where programs, links and maps are pinned.').prefault(
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
      'A policy write that is not active after this time is abandoned and gets the response 503.',
    ).prefault('5s'),
    file: path('YAML or JSON file that is loaded as the policy, and loaded again when it changes.')
      .nullable()
      .prefault(null)
      .meta({
        description: 'YAML or JSON file that is loaded as the policy, and loaded again when it changes.',
        form: 'path or `null`',
      }),
  })
  .prefault({})
  .meta({ description: 'How policies are activated.' });

const isIpv4 = ({ host }: { readonly host: string }): boolean => isIP(host) === 4;
const NOT_IPV4 = 'must be an IPv4 address';

const dns = z
  .strictObject({
    listen: z
      .array(listenAddress('An address.', { addressOnly: true }).refine(isIpv4, { error: NOT_IPV4 }))
      .min(1, 'must have at least one address')
      .meta({
        description: 'Addresses on which the DNS proxy listens, on UDP and TCP.',
        form: 'list of `address:port`',
      }),
    upstreams: z
      .array(listenAddress('An address.', { addressOnly: true }).refine(isIpv4, { error: NOT_IPV4 }))
      .min(1, 'must have at least one address')
      .meta({ description: 'Resolvers for allowed names.', form: 'list of `address:port`' }),
    transparent: flag('Whether the proxy also receives lookups that clients send to other resolvers.').prefault(false),
    denied_response: oneOf(['nxdomain', 'refused'], 'Response code for a denied name.').prefault('nxdomain'),
    min_grant: duration('1s', '24h', 'Minimum time for which a learned address is granted.').prefault('60s'),
    max_grant: duration('1s', '24h', 'The longest.').prefault('24h'),
    upstream_order: oneOf(
      ['listed', 'fastest'],
      'Which of the upstreams that answer is asked first: the one that is `listed` first, or the `fastest` of late. The next one is asked where it has not answered after 0.4 s.',
    ).prefault('listed'),
    cache_size: whole(1, 4_096, 'Size of the answer cache in MiB. Answers are kept for their TTL.').prefault(64),
    serve_stale: duration(
      '0s',
      '72h',
      'For how long after its time a kept answer is given where no upstream answers (RFC 8767). `0s`: never.',
    ).prefault('0s'),
    rebind_protection: flag(
      'Whether addresses that IANA’s registry of special-purpose addresses (RFC 6890) does not call globally reachable are left out of answers for public names, such as 10.0.0.0/8, 100.64.0.0/10 and the prefixes for documentation; and the node’s own, loopback, link-local, multicast and reserved ones out of all answers. Names under `internal`, `local` and `home.arpa` are not public. Each is a finding, and the client is told by an extended error.',
    ).prefault(true),
    rebind_allow: z.array(namePattern('A name.')).prefault([]).meta({
      description:
        'Names that may be at such addresses all the same; never at the node’s own, loopback, link-local, multicast and reserved ones.',
      form: 'list of names, each with `*.` before it or not',
    }),
  })
  .optional()
  .meta({
    description:
      'The DNS proxy: clients that ask it may connect to what the names that the policy allows lead to. Without it rules with a hostname match nothing.',
  });

const servicePlane = z
  .strictObject({
    listen: listenAddress('Address of this node on which redirected connections arrive. No other service may use it.', {
      addressOnly: true,
    })
      .refine(isIpv4, { error: NOT_IPV4 })
      .prefault('127.0.0.1:15001'),
    workers: whole(1, 64, 'Number of inspection threads. Each connection belongs to one thread.').prefault(2),
    max_connections: whole(
      16,
      1_000_000,
      'Maximum number of connections per thread. Further ones are reset; in audit mode the same number again passes without inspection.',
    ).prefault(32_768),
    max_connections_per_source: whole(
      1,
      1_000_000,
      'Connections of one source address that one thread has at once, of `max_connections`; the kernel spreads connections evenly over `workers`. Further connections are treated as those above `max_connections`. Clients behind one translated address are one source.',
    ).prefault(4_096),
    upstream_ca: text(
      '`system`, or a PEM file with the CA certificates that must have signed the certificates of servers.',
    )
      .prefault('system')
      .meta({
        description:
          '`system`, or a PEM file with the CA certificates that must have signed the certificates of servers.',
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
      'TLS and HTTP inspection: connections that reach a TLS rule are judged by what they say. Without it they fail.',
  });

const cluster = z
  .strictObject({
    etcd: z.strictObject({
      endpoints: z
        .array(url('A URL.'))
        .min(1, 'must have at least one URL')
        .meta({ description: 'The members of etcd.', form: 'list of URLs' }),
      tls: mutualTls('members of etcd').nullable().prefault(null).meta({ description: 'Mutual TLS towards etcd.' }),
    }),
    peer: z.strictObject({
      listen: listenAddress('Address on which other nodes reach this node.'),
      advertise: listenAddress('Address that is announced to other nodes.'),
      tls: mutualTls('other nodes').meta({ description: 'Mutual TLS between nodes.' }),
    }),
    prefix: z
      .string()
      .regex(/^\/[^\s]*[^\s/]$/, 'must begin with / and must not end with it')
      .prefault('/weir')
      .meta({ description: 'Prefix of every key in etcd.', form: 'text' }),
    seal_key_file: path('File of the key that seals the intercept CA.').nullable().prefault(null).meta({
      description:
        'File of the key that seals the intercept CA: 32 random bytes in base64, for its user alone. Without it the CA stays on its node, sealed with `seal.key` of the data folder.',
      form: 'path or `null`',
    }),
  })
  .optional()
  .meta({
    description:
      'Several nodes with one policy. This build accepts the section and does not run the part yet: it says so in `/ready`.',
  });

const findings = z
  .strictObject({
    retention: duration('1m', '3650d', 'How long a finding is kept after it was last seen.').prefault('30d'),
    max_entries: whole(
      1_000,
      10_000_000,
      'Maximum number of findings. Above it those that were last seen longest ago are removed.',
    ).prefault(100_000),
    file: z
      .strictObject({
        path: absolutePath('The file, of mode 0600. Full ones are `path.1`, `path.2` and so on, the newest first.'),
        max_size: whole(1, 4_096, 'Size in MiB above which a new file is started.').prefault(64),
        keep: whole(1, 1_000, 'Number of full files that are kept.').prefault(5),
      })
      .nullable()
      .prefault(null)
      .meta({ description: 'Writes every change of a finding to a file, one JSON object per line.' }),
    webhook: z
      .strictObject({
        url: webUrl('URL to which changes are sent, by POST as a JSON array. Redirects are not followed.'),
        secret_file: path('File with the secret for the signature of requests, in the header `Weir-Signature`.'),
        timeout: duration('100ms', '60s', 'Time limit of one request.').prefault('5s'),
      })
      .nullable()
      .prefault(null)
      .meta({ description: 'Sends every change of a finding to a URL. Failed deliveries are repeated.' }),
  })
  .prefault({})
  .meta({
    description: 'The record of denies, refused logins and changes of the configuration: see `docs/findings.md`.',
  });

const wiretap = z
  .strictObject({
    replay: duration('0s', '10m', 'How far back a wiretap reader can start.').prefault('30s'),
  })
  .prefault({})
  .meta({ description: 'The live view of traffic.' });

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
  wiretap,
  service_plane: servicePlane,
  cluster,
});

export type ParsedConfig = z.output<typeof configSchema>;
