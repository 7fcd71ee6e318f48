import { setTimeout } from 'node:timers/promises';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { allowAll, denyAll } from '#test/kernel/policies.js';
import type { Bench, Row } from '../bench.js';
import { attachWeir, BY_STACK } from './attached-weir.js';
import { Comparison, quantile } from './comparison.js';
import type { FiveTuple } from './frames.js';
import { Pair } from './pair.js';
import { LIVE } from './policies.js';
import { DESTINATIONS, type ForwardRig, type Send, SOURCES } from './rig.js';

const COST = '× NAT alone';
const UDP = { protocol: IPPROTO.udp };
const SYN = { protocol: IPPROTO.tcp, tcpFlags: 2 };
const ROUND = 20_000;
const REFUSAL_ROUNDS = 15;
const FIRST_PORT = 1_024;
const ESTABLISHED_MS = 5_000;
const AGAIN_MS = 500;
/** Translates sources to the address of the node. The ports stay, because each flow has a different port. */
const RULES = `add table ip mine
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" snat to ${ADDRESSES.nodeWan}`;

const DROP_ALL = `add table netdev quiet
add chain netdev quiet every { type filter hook ingress device wan0 priority 0; policy drop; }`;

/** Flows before the translation (`real`), and as the server sees them (`wire`). */
type Flows = Readonly<Record<'real' | 'wire', readonly FiveTuple[]>>;

function flowsFrom(count: number): Flows {
  const from = (source: number): FiveTuple[] =>
    Array.from({ length: count }, (_, index) => ({
      source,
      destination: DESTINATIONS.base + 1 + (index & 255),
      sourcePort: FIRST_PORT + index,
      destinationPort: 443,
    }));
  return { real: from(SOURCES.base + 1), wire: from(parseIpv4Address(ADDRESSES.nodeWan) ?? 0) };
}

/**
 * Sends packets of each flow from both sides for more than two seconds: conntrack treats a flow as
 * established after two seconds.
 */
async function establish(rigs: readonly ForwardRig[], { real, wire }: Flows): Promise<void> {
  for (let time = 0; time < ESTABLISHED_MS; time += AGAIN_MS) {
    await setTimeout(AGAIN_MS);
    for (const rig of rigs) {
      rig.use(real);
      rig.send(real.length, UDP);
      rig.use(wire);
      rig.send(wire.length, { ...UDP, from: 'server' });
    }
  }
}

/**
 * Returns the time of a packet with Weir, relative to the time with the same NAT and without BPF programs.
 * Both nodes forward in turns.
 */
async function cost(pair: Pair, flows: Flows, from: 'client' | 'server'): Promise<number> {
  const rigs = [pair.plain, pair.filtered];
  await establish(rigs, flows);
  for (const rig of rigs) rig.use(from === 'client' ? flows.real : flows.wire);
  return new Comparison().cost({
    plain: () => pair.plain.send(ROUND, { ...UDP, from }),
    other: () => pair.filtered.send(ROUND, { ...UDP, from }),
  });
}

/**
 * Returns the time in ns of a refused frame: the server sends it to open a flow, and the policy denies it.
 * Includes the time to generate the frame and to deliver it to the node.
 */
function refusalNs(rig: ForwardRig, ends: readonly FiveTuple[], packet: Send): number {
  rig.use(ends);
  const rounds = Array.from({ length: REFUSAL_ROUNDS }, () =>
    rig.send(ROUND, { ...packet, from: 'server', newPorts: true }, 0),
  );
  return quantile(rounds, 0.5);
}

async function measure(pair: Pair): Promise<Row[]> {
  for (const { topology } of [pair.plain, pair.filtered]) await topology.node.must('nft', RULES);
  const [one, many] = [flowsFrom(1), flowsFrom(LIVE)];
  const costs: Row[] = [];
  for (const [by, settings] of [
    ['', {}],
    [', by the stack', BY_STACK],
  ] as const) {
    const passing = await attachWeir(pair.filtered, allowAll, settings);
    try {
      for (const [what, flows, from, atMost] of [
        ['replies of a masqueraded flow', one, 'server', 1.15],
        [`replies, ${LIVE} flows`, many, 'server', 1.2],
        ['packets of the opener, one flow', one, 'client', 1.15],
        [`packets of the opener, ${LIVE} flows`, many, 'client', 1.15],
      ] as const) {
        const value = await cost(pair, flows, from);
        costs.push({ what: `${what}${by}`, value, unit: COST, ...(by === '' ? { atMost } : {}) });
      }
    } finally {
      await passing.detach();
    }
  }
  await pair.plain.topology.node.must('nft', DROP_ALL);
  const refusing = await attachWeir(pair.filtered, denyAll, BY_STACK);
  try {
    return [
      ...costs,
      { what: 'refuse a SYN to a host', value: refusalNs(pair.filtered, one.real, SYN), unit: 'ns', atMost: 800 },
      { what: 'refuse a datagram to a host', value: refusalNs(pair.filtered, one.real, UDP), unit: 'ns' },
      { what: 'refuse a SYN to the node', value: refusalNs(pair.filtered, one.wire, SYN), unit: 'ns' },
      {
        what: 'drop a SYN by one rule of nftables at ingress, without Weir',
        value: refusalNs(pair.plain, one.real, SYN),
        unit: 'ns',
      },
    ];
  } finally {
    await refusing.detach();
  }
}

/**
 * Measures the cost of a packet with Weir and SNAT, relative to SNAT alone, and the time of a packet that the
 * policy refuses.
 */
export const natBench: Bench = {
  name: 'nat',
  run: () => Pair.with('snat', measure),
};
