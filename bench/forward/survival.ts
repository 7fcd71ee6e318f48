import { IPPROTO } from '#contracts/policy/policy-model.js';
import { compile } from '#policy/compile/compile.js';
import type { Bench, Row } from '../bench.js';
import { attachWeir } from './attached-weir.js';
import type { FiveTuple } from './frames.js';
import { flowsOf, groupsOfTen, policyOf } from './policies.js';
import { ForwardRig } from './rig.js';

const IDLE = 2_000;
const MILLION = 1_000_000;
const TUPLES = 65_536;
const SYN = 0x02;
const ACK = 0x10;
const TCP = { protocol: IPPROTO.tcp };

/**
 * Sends the handshakes of TCP flows. Returns the number of flows whose last handshake packet reached the
 * server.
 */
function open(rig: ForwardRig, flows: readonly FiveTuple[]): number {
  rig.use(flows);
  rig.send(flows.length, { ...TCP, tcpFlags: SYN }, null);
  rig.send(flows.length, { ...TCP, tcpFlags: SYN | ACK, from: 'server' }, null);
  rig.send(flows.length, { ...TCP, tcpFlags: ACK }, null);
  return rig.frames.received('server');
}

/**
 * Sends one packet of each flow in each direction. Returns the smaller number of packets that arrived, which
 * is the number of flows that still pass in both directions.
 */
function alive(rig: ForwardRig, flows: readonly FiveTuple[]): number {
  rig.use(flows);
  const counts = (['client', 'server'] as const).map((from) => {
    rig.send(flows.length, { ...TCP, tcpFlags: ACK, from }, null);
    return rig.frames.received(from === 'client' ? 'server' : 'client');
  });
  return Math.min(...counts);
}

async function run(): Promise<readonly Row[]> {
  const rig = await ForwardRig.open('idle', TUPLES);
  try {
    rig.sink();
    const udp = groupsOfTen(10_000);
    const permits = udp.map((group) => group.flatMap((permit) => [permit, { ...permit, protocol: 'tcp' as const }]));
    const weir = await attachWeir(rig, compile(policyOf(permits)));
    const idle = flowsOf(permits, IDLE);
    const others = flowsOf(permits, TUPLES);
    const later = flowsOf(permits, IDLE + 1).slice(0, IDLE);
    const opened = open(rig, idle);
    rig.use(others);
    rig.send(MILLION, { protocol: IPPROTO.udp, newPorts: true }, null);
    const afterMillion = alive(rig, idle);
    rig.use(others);
    rig.send(MILLION, { ...TCP, tcpFlags: SYN, newPorts: true }, null);
    const afterFlood = alive(rig, idle);
    const openedAfter = open(rig, later);
    await weir.detach();
    const kept = { unit: `of ${IDLE}`, atLeast: IDLE };
    return [
      { what: 'TCP flows opened', value: opened, ...kept },
      { what: 'idle flows that pass both ways after a million new UDP flows', value: afterMillion, ...kept },
      { what: 'idle flows that pass both ways after a million SYNs', value: afterFlood, ...kept },
      { what: 'TCP flows opened after the floods', value: openedAfter, ...kept },
    ];
  } finally {
    await rig.remove();
  }
}

/**
 * Counts the idle TCP flows that still pass packets after a million new UDP flows and after a million SYNs.
 * All must pass.
 */
export const survivalBench: Bench = { name: 'survival', run };
