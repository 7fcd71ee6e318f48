import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { parseAddress } from '#addresses/ip-address.js';
import { IPPROTO, type Packet, type Policy, reversed } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { writePorts } from '#dataplane/attach/interfaces/port-table.js';
import { compile } from '#policy/compile/compile.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { defaultOnly } from '#test/kernel/policies.js';
import { topologyOfFile } from '#test/kernel/topology-of-file.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { ETHERNET, icmpContent, MAX_FRAME, MORE_FRAGMENTS, TCP } from './frame.js';
import {
  type ExtensionHeader,
  fragmentHeader,
  type Ipv6FrameOptions,
  NEXT,
  optionHeader,
  quoteOfIpv6,
  routingHeader,
  writeIpv6Packet,
} from './ipv6-frame.js';
import { DROPPED, type Loaded, loadForTest, PASSED, SKB } from './loaded.js';
import { GUARD_BIT } from './marks.js';
import type { DropReason } from './model/headers.js';

/**
 * Where a packet arrives: at lan0 or wan0 of the node, which route, or at a policed port of a bridge without
 * an address. Behind `router_port` may be routers (`dataplane.router_ports`). The bridge of `own_port` is
 * policed itself, and has the MAC address to which the packets go.
 */
type Place = 'lan0' | 'wan0' | 'port' | 'router_port' | 'own_port';
type Verdict = 'passes' | 'dropped' | 'to the node';
type Sent = {
  readonly packet: Packet<bigint>;
  readonly options: Ipv6FrameOptions;
  readonly at: Place;
  readonly verdict: Verdict;
  readonly counter: string;
};
/** A packet with what the datapath does to it, or an action between two packets. */
type Step = Sent | (() => void);
type Case = { readonly name: string; readonly rfc: string; readonly steps: readonly Step[] };

const topology = topologyOfFile('v6rfc');
let kernel: Loaded<'ipv6'>;
const interfaces = new Map<Place, number>();

beforeAll(async () => {
  await addIpv6(topology);
  await topology.node.must('ip', 'link', 'add', 'port', 'type', 'veth', 'peer', 'name', 'router_port');
  await topology.node.must('ip', 'link', 'add', 'own_port', 'type', 'veth', 'peer', 'name', 'unused');
  for (const place of ['lan0', 'wan0', 'port', 'router_port', 'own_port'] as const) {
    const link = await topology.node.must('ip', '-o', 'link', 'show', 'dev', place);
    interfaces.set(place, Number(link.split(':')[0]));
  }
  kernel = loadForTest({ family: 'ipv6', classifyAll: false, reversePath: 'strict' });
  const bridge = {
    ...{ ifindex: 999, name: 'br0', kind: 'bridge', master: 0, lower: 0, mac: Uint8Array.of(2, 0, 0, 0, 0, 9) },
    ...{ isUp: true, isLoopback: false, isEthernet: true, alternativeNames: [], xdpPrograms: [] },
    ...{ callsIptables: false, filtersVlans: false },
  };
  const own = { ...bridge, mac: Uint8Array.of(2, 0, 0, 0, 0, 1) };
  const ports = (['port', 'router_port', 'own_port'] as const).map((place) => ({
    ...{ ifindex: interfaces.get(place) ?? 0, bridge: place === 'own_port' ? own : bridge },
    ...{ hasRoutes: { ipv4: false, ipv6: false }, isPoliced: place === 'own_port' },
    ...{ hasRouter: place === 'router_port', addresses: { ipv4: [], ipv6: [] } },
  }));
  writePorts(kernel.object.mapFd('ports'), ports);
});
afterAll(() => kernel?.close());
beforeEach(() => {
  kernel.forget();
  kernel.activate(openToClient);
});

const at = (text: string): bigint => {
  const address = parseAddress(text);
  if (typeof address !== 'bigint') throw new Error(`not an address of IPv6: ${text}`);
  return address;
};
const CLIENT = at(IPV6.client);
const SERVER = at(IPV6.server);
const NEIGHBOUR = at('fd77:1::9');
const ROUTER_BEHIND = at('fd77:2::9');
const ALL_NODES = at('ff02::1');
const LINK_LOCAL = at('fe80::66');

const ipv6 = (of: Policy): Program => compile(of, { ipv6: true });
/** Denies everything but the packets of the network of the client, with any protocol. */
const openToClient = ipv6(policy([group(['fd77:1::/64'], [rule()])]));
/** Denies everything but the packets of the network of the client with these ports and types. */
const someAllowed = ipv6(
  policy([
    group(
      ['fd77:1::/64'],
      [
        rule({ protocol: IPPROTO.tcp, ports: ['443'] }),
        ...[IPPROTO.udp, IPPROTO.udplite, IPPROTO.sctp].map((protocol) => rule({ protocol, ports: ['53'] })),
        rule({ protocol: IPPROTO.icmpv6, icmpTypes: [128] }),
      ],
    ),
  ]),
);
const denyAll = ipv6(defaultOnly('deny'));

const udp: Packet<bigint> = {
  ...{ source: CLIENT, destination: SERVER, protocol: IPPROTO.udp, sourcePort: 40_000, destinationPort: 53 },
  ...{ icmpType: 0, icmpCode: 0 },
};
const tcp: Packet<bigint> = { ...udp, protocol: IPPROTO.tcp, destinationPort: 443 };
const of = (protocol: number): Packet<bigint> => ({ ...udp, protocol, sourcePort: 0, destinationPort: 0 });
const icmp = (icmpType: number, source = CLIENT, destination = SERVER): Packet<bigint> => ({
  ...of(IPPROTO.icmpv6),
  ...{ source, destination, icmpType },
});
const echo = icmp(128);
const back = (packet: Packet<bigint>): Packet<bigint> => ({ ...packet, ...reversed(packet) });

const sent = (verdict: Verdict, counter: string) => {
  return (packet: Packet<bigint>, options: Ipv6FrameOptions = {}, place: Place = 'lan0'): Sent => ({
    ...{ packet, options, at: place, verdict, counter },
  });
};
const passes = sent('passes', 'allow');
/** Passes by no rule, because it is a message of the link from a bridge port. */
const isSwitched = sent('passes', 'non_ipv4');
const toNode = sent('to the node', 'to_node');
const dropped = (
  reason: DropReason,
  packet: Packet<bigint>,
  options: Ipv6FrameOptions = {},
  place: Place = 'lan0',
): Sent => sent('dropped', `drop_${reason}`)(packet, options, place);
const enforce = (program: Program) => (): void => void kernel.activate(program);
/** Compares counters of the whole case. */
const counted = (counts: Readonly<Record<string, number>>) => (): void =>
  expect(kernel.counted()).toMatchObject(counts);

type Part = { readonly from: number; readonly bytes: number; readonly more?: boolean; readonly id?: number };
/** Returns the options of a fragment of a datagram with 200 bytes of payload. */
function part(packet: Packet<bigint>, { from, bytes, more = true, id = 7 }: Part): Ipv6FrameOptions {
  const whole = new Uint8Array(MAX_FRAME);
  const length = writeIpv6Packet(whole, packet, { payloadBytes: 200 });
  const content = new Uint8Array(bytes);
  if (from < 200) content.set(whole.subarray(ETHERNET + 40 + from, Math.min(length, ETHERNET + 40 + from + bytes)));
  return { id, fragment: (more ? MORE_FRAGMENTS : 0) | (from / 8), content };
}
const FIRST: Part = { from: 0, bytes: 48 };
const MIDDLE: Part = { from: 48, bytes: 48 };
const LAST: Part = { from: 96, bytes: 30, more: false };

const hop = optionHeader(NEXT.hopByHop);
const destination = optionHeader(NEXT.destination);
const options = (kind: number, ...text: readonly number[]): ExtensionHeader => ({ kind, bytes: [0, 0, ...text] });
const cut: ExtensionHeader = { kind: NEXT.destination, bytes: [0, 9, 0, 0, 0, 0, 0, 0] };
const none = new Uint8Array();
const after = (...extensions: readonly ExtensionHeader[]): Ipv6FrameOptions => ({ extensions });

/** An ICMPv6 error that quotes `about`, from a router behind the server by default. */
function error(
  about: Packet<bigint>,
  type: number,
  quote: Uint8Array = quoteOfIpv6(about),
  { from = ROUTER_BEHIND, to = about.source }: { readonly from?: bigint; readonly to?: bigint } = {},
): [Packet<bigint>, Ipv6FrameOptions] {
  return [icmp(type, from, to), { content: icmpContent(type, 0, quote) }];
}
const isRelated = (...[packet, given]: [Packet<bigint>, Ipv6FrameOptions]): Step[] => [
  passes(packet, given, 'wan0'),
  counted({ icmp_related: 1 }),
];
const isNotRelated = (...[packet, given]: [Packet<bigint>, Ipv6FrameOptions]): Step =>
  dropped('policy_deny', packet, given, 'wan0');

const LINK = { hopLimit: 255 };
const advertisement = icmp(134, LINK_LOCAL, ALL_NODES);
const redirect = icmp(137, LINK_LOCAL, CLIENT);
const solicitation = icmp(135, LINK_LOCAL, at('ff02::1:ff00:1'));
const report = icmp(143, LINK_LOCAL, at('ff02::16'));
const dhcpAdvertise = {
  ...udp,
  ...{ source: LINK_LOCAL, destination: at('fe80::77'), sourcePort: 547, destinationPort: 546 },
};
const alert = options(NEXT.hopByHop, 5, 2, 0, 0, 1, 0);

const cases: readonly Case[] = [];
function row(name: string, rfc: string, ...steps: readonly Step[]): void {
  (cases as Case[]).push({ name, rfc, steps });
}

// Extension headers
row('hop-by-hop options first', '8200, 4.3', passes(tcp, after(hop)));
row('hop-by-hop options after destination options', '8200, 4.1', dropped('malformed', tcp, after(destination, hop)));
row('hop-by-hop options twice', '8200, 4.1', dropped('malformed', tcp, after(hop, hop)));
row(
  'an unknown hop-by-hop option, for which each router must discard the packet',
  '8200, 4.2',
  passes(tcp, after(options(NEXT.hopByHop, 0x9e, 4, 0, 0, 0, 0))),
);
row(
  'an unknown destination option, for which the receiver must discard the packet',
  '8200, 4.2',
  passes(tcp, after(options(NEXT.destination, 0xde, 4, 0, 0, 0, 0))),
);
row(
  'an option that ends beyond its header',
  '8200, 4.2',
  passes(tcp, after(options(NEXT.destination, 0x1e, 200, 0, 0, 0, 0))),
);
row('options that end beyond the packet', '8200, 4.2', dropped('malformed', tcp, after(cut)));
row('four extension headers', '8504, 5.3', passes(tcp, after(hop, destination, destination, destination)));
row(
  'five extension headers',
  '8504, 5.3',
  dropped('malformed', tcp, after(hop, destination, destination, destination, destination)),
);
row(
  'ports after extension headers: one that the policy allows, and one that it denies',
  '8200, 4.1',
  enforce(someAllowed),
  passes(tcp, after(hop, destination)),
  dropped('policy_deny', { ...tcp, destinationPort: 22 }, after(hop, destination)),
);
for (const [type, rfc] of [
  [0, '5095, 3'],
  [2, '6275, 6.4'],
  [3, '6554, 3'],
  [4, '8754, 2'],
] as const)
  row(`a routing header of type ${type}`, rfc, dropped('source_route', tcp, after(routingHeader(type))));
const protocols = [
  ['an authentication header', '4302, 2', NEXT.ah],
  ['ESP', '4303, 2', NEXT.esp],
  ['no next header (59), with bytes after it', '8200, 4.7', NEXT.none],
  ['a mobility header', '6275, 6.1', 135],
  ['an unknown next header (253)', '8200, 4', 253],
  ['IPv6 in IPv6 (41)', '2473, 3', 41],
  ['IPv4 in IPv6 (4)', '2473, 3', 4],
] as const;
for (const [name, rfc, protocol] of protocols)
  row(
    `${name}: the rule allows any protocol, then only ports`,
    rfc,
    passes(of(protocol)),
    enforce(someAllowed),
    dropped('policy_deny', of(protocol)),
  );
row('no next header (59), without bytes after it', '8200, 4.7', dropped('malformed', of(NEXT.none), { content: none }));

// Lengths
row('a payload length of 0', '8200, 3', dropped('malformed', tcp, { payloadLength: 0 }));
row(
  'a jumbogram',
  '2675, 3',
  dropped('malformed', tcp, { extensions: [options(NEXT.hopByHop, 0xc2, 4, 0, 1, 0, 0)], payloadLength: 0 }),
);
row('a payload length beyond the frame', '8200, 3', dropped('malformed', tcp, { payloadLength: 100 }));
row('the version 4 in a frame of IPv6', '8200, 3', dropped('malformed', tcp, { version: 4 }));

// Fragments
row(
  'atomic fragments of one identification, twice',
  '6946, 4',
  enforce(someAllowed),
  passes(tcp, { fragment: 0, id: 7 }),
  passes(tcp, { fragment: 0, id: 7 }),
  dropped('policy_deny', { ...tcp, destinationPort: 22 }, { fragment: 0, id: 7 }),
);
row(
  'fragments: the first, a later, the last',
  '8200, 4.5',
  passes(udp, part(udp, FIRST)),
  passes(udp, part(udp, MIDDLE)),
  passes(udp, part(udp, LAST)),
);
row(
  'fragments: the first, an overlapping, another later',
  '5722, 3',
  passes(udp, part(udp, FIRST)),
  dropped('fragment_overlap', udp, part(udp, { from: 40, bytes: 16 })),
  dropped('fragment', udp, part(udp, LAST)),
);
row(
  'fragments: the first, a later, a duplicate of it, the last',
  '8200, 4.5',
  passes(udp, part(udp, FIRST)),
  passes(udp, part(udp, MIDDLE)),
  dropped('fragment_overlap', udp, part(udp, MIDDLE)),
  dropped('fragment', udp, part(udp, LAST)),
);
row(
  'fragments: a later before the first, the first, the later again',
  '8200, 4.5',
  dropped('fragment', udp, part(udp, MIDDLE)),
  passes(udp, part(udp, FIRST)),
  passes(udp, part(udp, MIDDLE)),
);
row(
  'fragments: the first, the last, the last again',
  '8200, 4.5',
  passes(udp, part(udp, FIRST)),
  passes(udp, part(udp, LAST)),
  dropped('fragment_overlap', udp, part(udp, LAST)),
);
row(
  'fragments: the first of a denied datagram, a later',
  '8200, 4.5',
  enforce(someAllowed),
  dropped('policy_deny', { ...udp, destinationPort: 99 }, part({ ...udp, destinationPort: 99 }, FIRST)),
  dropped('fragment', udp, part(udp, MIDDLE)),
);
row(
  'fragments: the first, a later of another source with the same identification',
  '8200, 4.5',
  passes(udp, part(udp, FIRST)),
  dropped('fragment', { ...udp, source: NEIGHBOUR }, part(udp, MIDDLE)),
);
row(
  'fragments: the first, a later whose fragment header names another next header',
  '8200, 4.5',
  passes(udp, part(udp, FIRST)),
  passes(udp, { ...part(udp, MIDDLE), nextHeader: IPPROTO.tcp }),
);
row(
  'a first fragment that ends before the flags of TCP',
  '7112, 5',
  dropped('fragment_tiny', tcp, part(tcp, { from: 0, bytes: 8 })),
);
row(
  'a first fragment that ends in an extension header',
  '7112, 5',
  dropped('fragment_tiny', tcp, { fragment: MORE_FRAGMENTS, fragmented: [cut] }),
);
row(
  'a first fragment with the whole chain of headers after its fragment header',
  '7112, 5',
  passes(udp, { fragment: MORE_FRAGMENTS, fragmented: [destination], payloadBytes: 8 }),
);
row(
  'a fragment, not the last, whose length is no multiple of eight bytes',
  '8200, 4.5',
  dropped('malformed', udp, part(udp, { from: 0, bytes: 49 })),
);
row(
  'fragments: the first, one that ends beyond 65,535 bytes',
  '8200, 4.5',
  passes(udp, part(udp, FIRST)),
  dropped('malformed', udp, part(udp, { from: 65_528, bytes: 8, more: false })),
);
row(
  'two fragment headers',
  '8200, 4.1',
  dropped('malformed', udp, after(fragmentHeader(0, false, 1), fragmentHeader(0, false, 2))),
);

// ICMPv6 errors
for (const [type, name, rfc] of [
  [1, 'destination unreachable', '4890, 4.3.1'],
  [2, 'packet too big', '4890, 4.3.1'],
  [3, 'time exceeded', '4890, 4.3.1'],
  [4, 'parameter problem', '4890, 4.3.1'],
] as const)
  row(`${name} that quotes a packet of a flow`, rfc, passes(udp), ...isRelated(...error(udp, type)));
row(
  'packet too big that quotes extension headers',
  '4443, 2.4 c',
  passes(udp),
  ...isRelated(...error(udp, 2, quoteOfIpv6(udp, { extensions: [hop, destination] }))),
);
row(
  'packet too big that quotes a first fragment',
  '4443, 2.4 c',
  passes(udp),
  ...isRelated(...error(udp, 2, quoteOfIpv6(udp, part(udp, FIRST), 48))),
);
row(
  'packet too big of an MTU below 1,280',
  '8200, 5',
  passes(udp),
  ...isRelated(...error(udp, 2, Uint8Array.from(quoteOfIpv6(udp)).fill(200, 7, 8))),
);
row(
  'packet too big that quotes a packet that ends in its ports',
  '4443, 2.4 c',
  passes(udp),
  isNotRelated(...error(udp, 2, quoteOfIpv6(udp).subarray(0, -5))),
);
row('packet too big that quotes a packet of no flow', '4890, 4.3.1', isNotRelated(...error(udp, 2)));
row(
  'packet too big to a host that did not send the quoted packet',
  '4443, 5.2',
  passes(udp),
  isNotRelated(...error(udp, 2, quoteOfIpv6(udp), { to: NEIGHBOUR })),
);
row(
  'packet too big from the side of the sender of the quoted packet',
  '4443, 5.2',
  passes(udp),
  enforce(someAllowed),
  passes(udp),
  dropped('policy_deny', ...error(udp, 2, quoteOfIpv6(udp), { from: NEIGHBOUR })),
);
row(
  'packet too big that is a fragment itself',
  '4443, 2.4 c',
  passes(udp),
  isNotRelated(error(udp, 2)[0], { content: icmpContent(2, 0, quoteOfIpv6(udp)), fragment: MORE_FRAGMENTS }),
);
row(
  'packet too big of a suspended flow',
  '4890, 4.3.1',
  passes(udp),
  passes(back(udp), {}, 'wan0'),
  enforce(denyAll),
  dropped('policy_deny', udp),
  counted({ flows_suspended: 1 }),
  isNotRelated(...error(udp, 2)),
);
row(
  'an unknown error (type 100) that quotes a packet of a flow',
  '4443, 2.4 a',
  passes(udp),
  isNotRelated(...error(udp, 100)),
);

// Other messages of ICMPv6
row(
  'echo: a request, its reply, a reply with another identifier, a request of the other side',
  '4890, 4.3.1',
  passes(echo),
  passes(icmp(129, SERVER, CLIENT), {}, 'wan0'),
  dropped('policy_deny', icmp(129, SERVER, CLIENT), { icmpId: 78 }, 'wan0'),
  dropped('policy_deny', back(echo), {}, 'wan0'),
);
row('a redirect across the router', '4890, 4.3.3', dropped('icmp_redirect', icmp(137)));
row('a redirect to the node', '4861, 8.1', toNode(icmp(137, LINK_LOCAL, at(IPV6.linkLocal)), LINK));
row(
  'a node information query, without a rule for its type',
  '4890, 4.3.4',
  enforce(someAllowed),
  dropped('policy_deny', icmp(139)),
);
row(
  'an ICMPv6 message of an unassigned type (200), without a rule for its type',
  '4890, 4.3.5',
  enforce(someAllowed),
  dropped('policy_deny', icmp(200)),
);

// Messages of routers and DHCPv6 servers on bridge ports
const forms: readonly (readonly [string, string, Ipv6FrameOptions])[] = [
  ['', '6105, 2', {}],
  [' behind hop-by-hop options', '7113, 3', after(hop)],
  [' behind destination options', '7113, 3', after(destination)],
  [' in an atomic fragment', '7113, 3', { fragment: 0, id: 7 }],
  [
    ' in a first fragment',
    '7113, 3',
    { fragment: MORE_FRAGMENTS, id: 7, content: Uint8Array.of(134, ...new Uint8Array(15)) },
  ],
];
for (const [form, rfc, given] of forms)
  row(
    `a router advertisement${form}, at a bridge port`,
    rfc,
    dropped('router_guard', advertisement, { ...LINK, ...given }, 'port'),
  );
row(
  'a router advertisement in fragments at a bridge port: the chain of headers ends in the second',
  '7113, 3',
  dropped(
    'fragment_tiny',
    advertisement,
    { ...LINK, fragment: MORE_FRAGMENTS, id: 7, fragmented: [cut], content: none },
    'port',
  ),
  dropped('fragment', advertisement, { ...LINK, ...part(advertisement, { from: 8, bytes: 80, more: false }) }, 'port'),
);
row(
  'a router advertisement with hop limit 64, at a bridge port',
  '4861, 6.1.2',
  dropped('router_guard', advertisement, {}, 'port'),
);
row('a router advertisement, at a port in `router_ports`', '6105, 2', isSwitched(advertisement, LINK, 'router_port'));
row(
  'a router advertisement in a first fragment, at a port in `router_ports`',
  '6980, 5',
  dropped('policy_deny', advertisement, { ...LINK, ...part(advertisement, FIRST) }, 'router_port'),
);
row(
  'at a port of a policed bridge, to the bridge: a router advertisement, a DHCPv6 advertise, a neighbour solicitation, UDP',
  '6105, 2',
  dropped('router_guard', { ...advertisement, destination: at('fe80::1') }, LINK, 'own_port'),
  dropped('router_guard', dhcpAdvertise, {}, 'own_port'),
  toNode({ ...solicitation, destination: at('fe80::1') }, LINK, 'own_port'),
  toNode(udp, {}, 'own_port'),
);
row('a router advertisement to the node', '4890, 4.4.1', toNode(advertisement, LINK));
row('a redirect, at a bridge port', '4861, 8.1', dropped('router_guard', redirect, LINK, 'port'));
row('a redirect, at a port in `router_ports`', '4861, 8.1', isSwitched(redirect, LINK, 'router_port'));
row('a DHCPv6 advertise, at a bridge port', '7610, 3', dropped('router_guard', dhcpAdvertise, {}, 'port'));
row(
  'a DHCPv6 advertise behind destination options, at a bridge port',
  '7610, 3',
  dropped('router_guard', dhcpAdvertise, after(destination), 'port'),
);
row(
  'a DHCPv6 advertise, at a port in `router_ports`',
  '7610, 3',
  dropped('policy_deny', dhcpAdvertise, {}, 'router_port'),
);

// Discovery
row(
  'neighbour solicitation with hop limit 255, and 64, at a bridge port',
  '4861, 7.1.1',
  isSwitched(solicitation, LINK, 'port'),
  dropped('policy_deny', solicitation, {}, 'port'),
);
row(
  'neighbour advertisement with hop limit 255, at a bridge port',
  '4861, 7.1.2',
  isSwitched(icmp(136, LINK_LOCAL, ALL_NODES), LINK, 'port'),
);
row(
  'neighbour solicitation in an atomic fragment, at a bridge port',
  '6980, 5',
  dropped('policy_deny', solicitation, { ...LINK, fragment: 0 }, 'port'),
);
row(
  'duplicate address detection: neighbour solicitation from ::, at a bridge port',
  '4862, 5.4.2',
  isSwitched({ ...solicitation, source: 0n }, LINK, 'port'),
);
row(
  'neighbour solicitation with hop limit 255: to the node, to a host behind the router',
  '4861, 7.1.1',
  enforce(someAllowed),
  toNode(icmp(135, CLIENT, at(IPV6.nodeLan)), LINK),
  dropped('policy_deny', icmp(135), LINK),
);
row('router solicitation to the node', '4890, 4.4.1', toNode(icmp(133, LINK_LOCAL, at('ff02::2')), LINK));
row(
  'multicast listener report with hop limit 1, and 2, at a bridge port',
  '3810, 5',
  isSwitched(report, { hopLimit: 1, extensions: [alert] }, 'port'),
  dropped('policy_deny', report, { hopLimit: 2, extensions: [alert] }, 'port'),
);
row(
  'multicast listener report without hop-by-hop options, at a bridge port',
  '3810, 5',
  dropped('policy_deny', report, { hopLimit: 1 }, 'port'),
);

// Addresses
row('the source ::', '4291, 2.5.2', dropped('spoofed_source', { ...udp, source: 0n }));
row('the source ::1', '4291, 2.5.3', dropped('loopback', { ...udp, source: 1n }));
row('the destination ::1', '4291, 2.5.3', dropped('loopback', { ...udp, destination: 1n }));
row(
  'the source ::ffff:10.0.0.1',
  '4291, 2.5.5.2',
  dropped('loopback', { ...udp, source: at('::') + 0xffff_0a00_0001n }),
);
row(
  'the destination ::ffff:10.0.0.1',
  '4291, 2.5.5.2',
  dropped('loopback', { ...udp, destination: 0xffff_0a00_0001n }),
);
row(
  'a multicast source, at a bridge port',
  '4291, 2.7',
  dropped('spoofed_source', { ...udp, source: ALL_NODES }, {}, 'port'),
);
row('a multicast source, to a host behind the router', '4291, 2.7', toNode({ ...udp, source: ALL_NODES }));
row('a link-local source, to a host behind the router', '4291, 2.5.6', toNode({ ...udp, source: LINK_LOCAL }));
row('a link-local destination', '4291, 2.5.6', toNode({ ...udp, destination: LINK_LOCAL }));
row('a SYN to a multicast group, to the router', '4291, 2.7', toNode({ ...tcp, destination: at('ff0e::1') }));
row(
  'a SYN to a multicast group, at a bridge port',
  '4291, 2.7',
  enforce(denyAll),
  dropped('policy_deny', { ...tcp, destination: at('ff0e::1') }, {}, 'port'),
);
row('a SYN to the subnet-router anycast address', '4291, 2.6.1', toNode({ ...tcp, destination: at('fd77:2::') }));
row('the source of another network', '2827, 3', dropped('spoofed_source', { ...udp, source: at('fd77:2::7') }));
row('an address of the node as source', '2827, 3', dropped('spoofed_source', { ...udp, source: at(IPV6.nodeLan) }));
row(
  'a temporary address of the network that a rule names',
  '8981, 3.3',
  passes({ ...udp, source: at('fd77:1::f1e2:d3c4:b5a6:9788') }),
);

// Transport
row(
  'a flow whose packets have different flow labels',
  '6437, 3',
  passes(udp, { label: 0x12345 }),
  passes(udp, { label: 0x54321 }),
  passes(back(udp), { label: 0x777 }, 'wan0'),
  counted({ half_opened: 1 }),
);
row('UDP with the checksum 0', '8200, 8.1', passes(udp));
row(
  'UDP with a length of 0',
  '2675, 4',
  dropped('malformed', udp, { content: Uint8Array.of(0x9c, 0x40, 0, 53, 0, 0, 0, 0, 1, 2, 3, 4) }),
);
for (const [name, rfc, protocol] of [
  ['UDP-Lite', '3828, 3.1', IPPROTO.udplite],
  ['SCTP', '9260, 3.1', IPPROTO.sctp],
] as const)
  row(
    `${name}: a port that the policy allows, and one that it denies`,
    rfc,
    enforce(someAllowed),
    passes({ ...udp, protocol }),
    dropped('policy_deny', { ...udp, protocol, destinationPort: 54 }),
  );
row('TCP with SYN and FIN', '9293, 3.5', dropped('tcp_flags', tcp, { tcpFlags: TCP.syn | TCP.fin }));

const isSent = (step: Step): step is Sent => typeof step !== 'function';

/** Returns the row of the document for a case: its name, the RFC, a verdict for each packet, drop reasons. */
function rowOf({ name, rfc, steps }: Case): string {
  const packets = steps.filter(isSent);
  const reasons = packets.flatMap(({ counter }) => (counter.startsWith('drop_') ? [`\`${counter.slice(5)}\``] : []));
  const verdicts = packets.map(({ verdict }) => verdict).join(', ');
  return `| ${name} | ${rfc} | ${verdicts} | ${[...new Set(reasons)].join(', ')} |`;
}

const VERDICT_COUNTERS = ['allow', 'audit', 'foreign', 'from_node', 'non_ipv4', 'to_node'];
/** Returns the counters of verdicts and drops: exactly one of them counts each packet. */
function verdictCounts(): Record<string, number> {
  const entries = Object.entries(kernel.counted());
  return Object.fromEntries(entries.filter(([name]) => name.startsWith('drop_') || VERDICT_COUNTERS.includes(name)));
}

test.each(cases.map((given) => [given.name, given.rfc, given] as const))(
  'the datapath handles this packet as docs/contract.md states: %s (RFC %s)',
  (_, __, { steps }) => {
    const expected: Record<string, number> = {};
    for (const step of steps) {
      if (!isSent(step)) {
        step();
        continue;
      }
      const { packet, options: given, at: place, verdict, counter } = step;
      kernel.context.setUint32(SKB.ifindex, interfaces.get(place) ?? 0, true);
      const { returned, mark } = kernel.runPacket(packet, given);
      expected[counter] = (expected[counter] ?? 0) + 1;
      expect({ counts: verdictCounts(), returned, isMarked: (mark & GUARD_BIT) !== 0 }).toEqual({
        counts: expected,
        returned: verdict === 'dropped' ? DROPPED : PASSED,
        isMarked: verdict === 'passes',
      });
    }
  },
);

test('the table of IPv6 packets in docs/contract.md has exactly the cases of this file', () => {
  const page = readFileSync(new URL('../../docs/contract.md', import.meta.url), 'utf8');
  const section = /^### D17c\. .*?(?=^### )/ms.exec(page)?.[0] ?? '';
  const rows = section.split('\n').filter((line) => line.startsWith('| '));
  expect(rows.slice(1)).toEqual(cases.map(rowOf));
});
