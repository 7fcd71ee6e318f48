import type { Grant } from '#contracts/datapath/datapath.js';
import { IPPROTO, type Policy, type Prefix, type Rule } from '#contracts/policy/policy-model.js';
import { linesFor, PATTERN, PATTERNS } from '#dataplane/grants/grant-layout.js';
import { flipProgram, stageProgram } from '#dataplane/thread/staging.js';
import { compile } from '#policy/compile/compile.js';
import { rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';
import { loadForBench, timeLookups } from './lookups.js';

const SOURCES = 0x0a00_0000;
const DESTINATIONS = 0x1400_0000;
/** The number of hostname rules in each group. A group has ten rules in total. */
const HOSTNAMES = 2;
const HOUR_NS = 3_600_000_000_000n;

const name = (number: number): string => `h${number}.example.com`;

/**
 * Returns a policy of groups with ten rules. The hostname rules come first and match every TCP port, so that
 * each classification of a packet must look up the grants of the destination address.
 */
function policyOf(rules: number, sources: number): Policy {
  const random = new Random(rules);
  const groups = rules / 10;
  const members = Array.from({ length: groups }, (): Prefix<number>[] => []);
  for (let source = 0; source < sources; source++) {
    // Assign adjacent addresses to different groups, so that the source map has one interval for each
    // address.
    members[source % groups]?.push({ address: SOURCES + source, length: 32 });
  }
  return {
    groups: members.map((own, group) => ({
      id: `g${group}`,
      pointer: '',
      mode: 'enforce' as const,
      sources: own,
      selectors: [],
      rules: Array.from({ length: 10 }, (_, index) => ruleOf(random, group, index)),
      defaultAction: undefined,
    })),
    default: { action: 'deny', mode: 'enforce', from: 'default_policy' },
  };
}

function ruleOf(random: Random, group: number, index: number): Rule {
  const named = index < HOSTNAMES;
  const text = name(group * HOSTNAMES + index);
  const low = random.below(60_000);
  return rule({
    id: `r${index}`,
    action: random.pick(['allow', 'deny'] as const),
    destinations: named ? [] : [{ address: DESTINATIONS + random.below(2 ** 12) * 2 ** 8, length: 24 }],
    hostname: named ? { kind: 'exact', labels: text.split('.'), text } : undefined,
    protocol: IPPROTO.tcp,
    destinationPorts: named ? [] : [{ low, high: low + 2_000 }],
  });
}

/** Returns grants for consecutive addresses. Each address is granted for one random name. */
function grantsOf(addresses: number, names: number, expiresAtNs: bigint): Grant[] {
  const random = new Random(addresses);
  const members = Array.from({ length: names }, (): number[] => []);
  for (let address = 0; address < addresses; address++) members[random.below(names)]?.push(DESTINATIONS + address);
  return members.map((own, number) => ({ pattern: name(number), addresses: own, expiresAtNs }));
}

function measure(rules: number, addresses: number, atMost: number): Row[] {
  const loaded = loadForBench(addresses);
  try {
    stageProgram(loaded, compile(policyOf(rules, addresses)), 1);
    flipProgram(loaded);
    const grants = grantsOf(addresses, (rules / 10) * HOSTNAMES, process.hrtime.bigint() + HOUR_NS);
    const space = {
      sources: { base: SOURCES, mask: addresses - 1 },
      destinations: { base: DESTINATIONS, mask: addresses - 1 },
    };
    const without = timeLookups(loaded, space);
    const started = performance.now();
    const refused = loaded.grants.add(grants, process.hrtime.bigint());
    const learnedMs = performance.now() - started;
    if (refused > 0)
      throw new Error(`${refused} of the addresses that DNS names resolved to did not fit into the BPF map grants`);
    const nanoseconds = timeLookups(loaded, space);
    const sweeping = performance.now();
    for (let swept = 0; loaded.grants.addressesOf('ipv4').entries > 0 && swept < 1_000; swept++) {
      loaded.grants.sweep(process.hrtime.bigint() + 30n * HOUR_NS);
    }
    const sweptMs = performance.now() - sweeping;
    const thousands = (count: number): string => count.toLocaleString('en');
    const label = `${thousands(rules)} rules, ${thousands(addresses)} sources`;
    return [
      { what: `${label}, nothing learned: a lookup, cold`, value: without, unit: 'ns' },
      { what: `${label} and learned addresses: a lookup, cold`, value: nanoseconds, unit: 'ns', atMost },
      { what: `${thousands(addresses)} learned: to learn one`, value: (learnedMs * 1e6) / addresses, unit: 'ns' },
      { what: `${thousands(addresses)} expired: to remove one`, value: (sweptMs * 1e6) / addresses, unit: 'ns' },
      {
        what: `${thousands(addresses)} learned: memory of the maps`,
        value: (linesFor(addresses) * 64 + PATTERNS * PATTERN.words * 4) / 2 ** 20,
        unit: 'MiB',
      },
    ];
  } finally {
    loaded.close();
  }
}

/**
 * Measures the classification of packets to addresses that are granted for all `names` hostnames. The
 * datapath must then search all grants of the address.
 */
function measureShared(names: number): Row[] {
  const addresses = 2 ** 12;
  const loaded = loadForBench(2 ** 18);
  try {
    const random = new Random(names);
    const [group] = policyOf(10, 1).groups;
    if (group === undefined) throw new Error('no group');
    const rules = Array.from({ length: names }, (_, index) => ({
      ...ruleOf(random, 0, 0),
      hostname: { kind: 'exact' as const, labels: name(index).split('.'), text: name(index) },
    }));
    const shared = { ...group, sources: [{ address: 0, length: 0 }], rules };
    stageProgram(loaded, compile({ ...policyOf(10, 1), groups: [shared] }), 1);
    flipProgram(loaded);
    const all = Array.from({ length: addresses }, (_, index) => DESTINATIONS + index);
    const expiresAtNs = process.hrtime.bigint() + HOUR_NS;
    loaded.grants.add(
      Array.from({ length: names }, (_, index) => ({ pattern: name(index), addresses: all, expiresAtNs })),
      process.hrtime.bigint(),
    );
    const nanoseconds = timeLookups(loaded, {
      sources: { base: SOURCES, mask: 0xffff },
      destinations: { base: DESTINATIONS, mask: addresses - 1 },
    });
    return [{ what: `an address of ${names} names: a lookup`, value: nanoseconds, unit: 'ns' }];
  } finally {
    loaded.close();
  }
}

async function run(): Promise<readonly Row[]> {
  return [...[1, 7, 100].flatMap(measureShared), ...measure(10_000, 2 ** 16, 350), ...measure(100_000, 2 ** 20, 700)];
}

/**
 * Measures how long the datapath takes to find the rule for a packet to a learned address, how long it takes
 * to learn and to remove an address, and the memory of the maps.
 */
export const learnedBench: Bench = { name: 'learned', run };
