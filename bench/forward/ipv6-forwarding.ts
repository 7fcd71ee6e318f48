import { type Family, IPPROTO } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import { compile } from '#policy/compile/compile.js';
import type { Bench, Row } from '../bench.js';
import { type AttachedWeir, attachWeir } from './attached-weir.js';
import { chainsOfGroups } from './competitors.js';
import { ipv6Policy } from './ipv6-policy.js';
import { load } from './load.js';
import { establish, Pair, SHARE } from './pair.js';
import { flowsOf, groupsOfTen, LIVE, policyOf, rulesAndFlows } from './policies.js';
import type { ForwardRig } from './rig.js';

const RULES = 10_000;
const permits = groupsOfTen(RULES);
const flows = flowsOf(permits, LIVE);
const ENFORCE = { ipv6: 'enforce' } as const;
const NEW_FLOWS = { protocol: IPPROTO.udp, newPorts: true };

function programOf(family: Family): Program {
  const policy = policyOf(permits);
  return compile(family === 'ipv4' ? policy : ipv6Policy(policy), { ipv6: true });
}

/** Runs `act` while Weir enforces the policy on nodes. `settings`: those of the section `dataplane`. */
async function withWeir<T>(
  rigs: readonly (readonly [ForwardRig, Program, object])[],
  act: () => Promise<T>,
): Promise<T> {
  const attached: AttachedWeir[] = [];
  try {
    for (const [rig, program, settings] of rigs) attached.push(await attachWeir(rig, program, { ...settings }));
    return await act();
  } finally {
    for (const weir of attached) await weir.detach();
  }
}

const besideUnfiltered = (): Promise<number> =>
  Pair.with(
    'v6',
    (pair) => {
      pair.use(flows);
      return withWeir([[pair.filtered, programOf('ipv6'), ENFORCE]], async () => {
        establish(pair.filtered, flows);
        return pair.share();
      });
    },
    ['ipv6', 'ipv6'],
  );

const besideTracking = (): Promise<number> =>
  Pair.with(
    'v6ct',
    (pair) => {
      pair.use(flows);
      return withWeir([[pair.plain, programOf('ipv6'), ENFORCE]], async () => {
        establish(pair.plain, flows);
        const loaded = load(pair.filtered.topology, ['nft', '-f', '-'], chainsOfGroups('ipv6').text(permits, true));
        if (loaded === undefined) throw new Error('nft did not load the rules within 20 s');
        establish(pair.filtered, flows);
        return 1 / (await pair.share());
      });
    },
    ['ipv6', 'ipv6'],
  );

/** The time of a packet of IPv4, relative to that at a node without IPv6 policies. */
const ofIpv4 = (): Promise<number> =>
  Pair.with('v4', (pair) => {
    pair.use(flows);
    const program = compile(policyOf(permits));
    const rigs = [
      [pair.plain, program, {}],
      [pair.filtered, programOf('ipv4'), ENFORCE],
    ] as const;
    return withWeir(rigs, async () => {
      for (const rig of [pair.plain, pair.filtered]) establish(rig, flows);
      return 1 / (await pair.share());
    });
  });

/** The time of the first packet of a flow of IPv6, relative to that of IPv4, with its delivery. */
const ofFirstPacket = (): Promise<number> =>
  Pair.with(
    'v6new',
    (pair) => {
      pair.use(flows);
      const rigs = [
        [pair.plain, programOf('ipv4'), ENFORCE],
        [pair.filtered, programOf('ipv6'), ENFORCE],
      ] as const;
      return withWeir(rigs, async () => 1 / (await pair.share(NEW_FLOWS)));
    },
    ['ipv4', 'ipv6'],
  );

async function run(): Promise<readonly Row[]> {
  const policy = rulesAndFlows(RULES, LIVE);
  return [
    { what: `Weir, ${policy}`, value: await besideUnfiltered(), unit: SHARE, atLeast: 1 },
    { what: `Weir against nftables with ct, ${policy}`, value: await besideTracking(), unit: '×', atLeast: 1.2 },
    {
      what: `a packet of IPv4 with ipv6: enforce, relative to ipv6: drop, ${policy}`,
      value: await ofIpv4(),
      unit: '×',
      atMost: 1.02,
    },
    {
      what: `a first packet of IPv6, relative to IPv4, ${RULES.toLocaleString('en')} rules`,
      value: await ofFirstPacket(),
      unit: '×',
      atMost: 1.25,
    },
  ];
}

/**
 * Measures packets of IPv6 through a node with Weir. The policies are those of the benchmark `forwarding`.
 */
export const ipv6ForwardingBench: Bench = { name: 'ipv6-forwarding', run };
