import { AddressSet } from '#addresses/address-map.js';
import type { MemberList } from '#contracts/kubernetes/membership.js';
import { type Group, IPPROTO, type Policy } from '#contracts/policy/policy-model.js';
import { FLOW_KEY_OFFSETS, FLOW_STRUCT_BYTES, KEY_USED } from '#dataplane/abi/flow.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { layout } from '#dataplane/image/program-image.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { flipProgram, stageProgram } from '#dataplane/thread/staging.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { selectorOf } from '#policy/model/sources/selector.js';
import { ProofMemory } from '#policy/proof/proof-memory.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import { MAX_FRAME, TCP, writeFrame } from '#test/dataplane/frame.js';
import { PASSED } from '#test/dataplane/loaded.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';
import { loadForBench, timeLookups } from './lookups.js';
import { median } from './median.js';

const SOURCES = 0x0a00_0000;
const DESTINATIONS = 0x1400_0000;
const MEMBERS = 2 ** 14;
const DEPLOYMENTS = 128;
const FLOWS = 2 ** 17;
const CHANGES = 5_000;
/** The maximum number of pods on a node that Kubernetes recommends. */
const PODS_OF_NODE = 110;
/** Packets of one round, each of which opens a flow. The first quarter of them is not measured. */
const OPENED = 512;

type Rules = { readonly groups: number; readonly each: number; readonly denies: boolean };

const keyOf = (deployment: number) =>
  selectorOf({ integration: 'prod', pod_selector: { match_labels: { app: `a${deployment}` } } });

/** Returns a policy whose groups share `count` source addresses, or have one Kubernetes selector each. */
function policyOf({ groups, each, denies }: Rules, kind: 'addresses' | 'selectors', count = MEMBERS): Policy {
  const random = new Random(groups);
  return {
    groups: Array.from({ length: groups }, (_, number): Group => {
      const sources = Array.from({ length: Math.ceil(count / groups) }, (_, at) => SOURCES + number + at * groups);
      return {
        id: `g${number}`,
        pointer: '',
        mode: 'enforce',
        sources: kind === 'addresses' ? sources.map((address) => ({ address, length: 32 })) : [],
        selectors: kind === 'addresses' ? [] : [keyOf(number)],
        rules: Array.from({ length: each }, (_, rule) => {
          const low = random.below(60_000);
          return {
            id: `r${rule}`,
            pointer: '',
            action: denies ? random.pick(['allow', 'deny'] as const) : ('allow' as const),
            mode: 'enforce' as const,
            destinations: [{ address: DESTINATIONS + random.below(2 ** 12) * 2 ** 8, length: 24 }],
            hostname: undefined,
            protocol: IPPROTO.tcp,
            sourcePorts: [],
            destinationPorts: [{ low, high: low + 2_000 }],
            icmpTypes: [],
            icmpCodes: [],
            tls: undefined,
          };
        }),
        defaultAction: undefined,
      };
    }),
    default: { action: 'deny', mode: 'enforce', from: 'default_policy' },
  };
}

/** Returns `count` pod addresses. Each belongs to one deployment, and each deployment to one source group. */
function membersOf(deployments: number, groups: number, count = MEMBERS): MemberList {
  const addresses = Array.from({ length: count }, (_, at) => SOURCES + at);
  return {
    added: Array.from({ length: deployments }, (_, at) => ({ number: at + 1, keys: [keyOf(at % groups).key] })),
    addresses,
    sets: Uint32Array.from(addresses, (_, at) => (at % deployments) + 1),
    dropped: [],
  };
}

const resolutionOf = (groups: number) => ({
  resolved: new Set(Array.from({ length: groups }, (_, at) => keyOf(at).key)),
  podNetworks: [{ address: SOURCES, length: 16 }],
  networks: new Map(),
});

const space = {
  sources: { base: SOURCES, mask: MEMBERS - 1 },
  destinations: { base: DESTINATIONS, mask: 0xf_ffff },
};

function memoryOf(object: BpfObject, name: 'flows' | 'flow_tags'): MappedMemory {
  const { maxEntries, valueSize } = mapShape(object.mapFd(name));
  return new MappedMemory(name, object.mapFd(name), maxEntries * valueSize);
}

function lookupRows(): Row[] {
  const rules = { groups: DEPLOYMENTS, each: 10, denies: true };
  const loaded = loadForBench(1);
  try {
    const activate = (judged: Policy, list: MemberList | undefined): void => {
      const membership = list === undefined ? undefined : { scope: resolutionOf(DEPLOYMENTS), list };
      stageProgram(loaded, compile(judged, { membership }), 1);
      flipProgram(loaded);
    };
    const list = membersOf(DEPLOYMENTS, DEPLOYMENTS);
    activate(policyOf(rules, 'addresses'), undefined);
    const static_ = timeLookups(loaded, space);
    loaded.members.replace(list);
    activate(policyOf(rules, 'selectors'), list);
    const owned = timeLookups(loaded, space);
    const foreign = timeLookups(loaded, { ...space, sources: { base: 0xc000_0000, mask: 0xff_ffff } });
    activate(policyOf(rules, 'addresses'), undefined);
    const foreignStatic = timeLookups(loaded, { ...space, sources: { base: 0xc000_0000, mask: 0xff_ffff } });
    const started = performance.now();
    for (let turn = 0; turn < CHANGES; turn++) {
      loaded.members.change({
        added: [],
        addresses: [SOURCES + (turn % MEMBERS)],
        sets: Uint32Array.of(turn % 2 === 0 ? 0 : 1),
        dropped: [],
      });
    }
    const changeUs = ((performance.now() - started) * 1_000) / CHANGES;
    const label = `${MEMBERS.toLocaleString('en')} sources`;
    return [
      { what: `${label} as static addresses: a first packet`, value: static_, unit: 'ns' },
      { what: `${label} as members: a first packet`, value: owned, unit: 'ns' },
      { what: `${label} as members: more than static`, value: owned - static_, unit: 'ns', atMost: 50 },
      {
        what: `${label} as members: more for another source`,
        value: foreign - foreignStatic,
        unit: 'ns',
        atMost: 50,
      },
      { what: 'a change of one member, without the walk', value: changeUs, unit: 'µs' },
    ];
  } finally {
    loaded.close();
  }
}

/**
 * Measures the whole program for first packets of allowed flows, also with the check of the members after a
 * flow is opened. The sources are the pods of one node, in 4 deployments.
 */
function openingRows(): Row[] {
  const rules = { groups: 4, each: 10, denies: false };
  const loaded = loadForBench(1, 2 * OPENED);
  const frame = new Uint8Array(MAX_FRAME);
  const run = new TestRun(loaded.object.programFd('weir_ingress'), frame, undefined, undefined);
  const table = [memoryOf(loaded.object, 'flows'), memoryOf(loaded.object, 'flow_tags')];
  const random = new Random(1);
  const [byAddress, bySelector] = [
    policyOf(rules, 'addresses', PODS_OF_NODE),
    policyOf(rules, 'selectors', PODS_OF_NODE),
  ];
  const nanoseconds = (): number => {
    for (const { words } of table) words.fill(0);
    let total = 0;
    for (let at = 0; at < OPENED; at++) {
      const source = random.below(PODS_OF_NODE);
      const rule = random.pick(byAddress.groups[source % rules.groups]?.rules ?? []);
      const packet = {
        source: SOURCES + source,
        destination: Number(rule.destinations[0]?.address ?? 0) + random.below(256),
        protocol: IPPROTO.tcp,
        sourcePort: 1_024 + at,
        destinationPort: rule.destinationPorts[0]?.low ?? 0,
        icmpType: 0,
        icmpCode: 0,
      };
      const action = run.run(writeFrame(frame, packet, { tcpFlags: TCP.syn }));
      if (action !== PASSED)
        throw new Error(`the BPF program returned ${action} for an allowed packet, expected ${PASSED}`);
      if (at >= OPENED / 4) total += run.durationNs;
    }
    return total / (OPENED - OPENED / 4);
  };
  try {
    const list = membersOf(rules.groups, rules.groups, PODS_OF_NODE);
    loaded.members.replace(list);
    const membership = { scope: resolutionOf(rules.groups), list };
    const measured = [compile(byAddress), compile(bySelector, { membership })].map((program) => (): number => {
      stageProgram(loaded, program, 1);
      flipProgram(loaded);
      nanoseconds();
      return Math.min(nanoseconds(), nanoseconds());
    });
    const turns = Array.from({ length: 200 }, () => measured.map((of) => of()));
    const [static_, owned] = [0, 1].map((at) => median(turns.map((turn) => turn[at] ?? 0)));
    const more = median(turns.map(([without = 0, with_ = 0]) => with_ - without));
    const label = `${PODS_OF_NODE} sources`;
    return [
      { what: `${label} as static addresses: the program, with a new flow`, value: static_ ?? 0, unit: 'ns' },
      { what: `${label} as members: the program, with a new flow`, value: owned ?? 0, unit: 'ns' },
      { what: `${label} as members: more than static, with a new flow`, value: more, unit: 'ns', atMost: 50 },
    ];
  } finally {
    for (const memory of table) memory.unmap();
    loaded.close();
  }
}

/** Measures the walk over the flow table that marks the flows of changed addresses to classify them again. */
function walkRows(): Row[] {
  const loaded = loadForBench(1, FLOWS);
  const { object } = loaded;
  const [flows, tags] = [memoryOf(object, 'flows'), memoryOf(object, 'flow_tags')];
  const renewal = new FlowRenewal(() => ({ ipv4: object, ipv6: null }));
  const sources = new AddressSet(Array.from({ length: 100 }, (_, at) => SOURCES + at));
  const timed = (): number => {
    let best = Number.POSITIVE_INFINITY;
    for (let turn = 0; turn < 20; turn++) {
      const started = performance.now();
      renewal.reclassify(sources);
      best = Math.min(best, performance.now() - started);
    }
    return best;
  };
  const empty = timed();
  const words = FLOW_STRUCT_BYTES / 4;
  // Fill half of the slots of the flow table, which is the number of flows that it can hold.
  tags.words.forEach((_, at) => {
    tags.words[at] = at % 2 === 0 ? 0x0303_0303 : 0;
  });
  for (let line = 0; line < flows.words.length / words; line++) {
    flows.words[line * words] = 0x0b00_0000 + line;
    flows.words[line * words + FLOW_KEY_OFFSETS.protocol / 4] = KEY_USED << 16;
  }
  const full = timed();
  renewal.unmap();
  flows.unmap();
  tags.unmap();
  loaded.close();
  const label = `a change of 100 members: the walk over`;
  return [
    { what: `${label} an empty table for ${FLOWS.toLocaleString('en')} flows`, value: empty, unit: 'ms' },
    { what: `${label} ${FLOWS.toLocaleString('en')} flows`, value: full, unit: 'ms', atMost: 10 },
  ];
}

/** Measures the compilation, the proof and the flip for a deployment that is new in a large policy. */
function deploymentRows(denies: boolean): Row[] {
  const rules = { groups: 1_000, each: 100, denies };
  const judged = policyOf(rules, 'selectors');
  const loaded = loadForBench(1);
  try {
    const memory = new CompileMemory();
    const proofs = new ProofMemory();
    const scope = resolutionOf(rules.groups);
    const elapsed = (list: MemberList): number => {
      const started = performance.now();
      const membership = { scope, list };
      const program = compile(judged, { memory, membership });
      const sample = sampleOf(judged, proofs, membership);
      stageProgram(loaded, program, 1, {
        image: layout(program),
        placement: loaded.trafficStatistics.find(program.ruleNames),
      });
      const mismatch = loaded.prover.mismatch(sample, loaded.slots.idleSlot);
      if (mismatch !== null) throw new Error('the proof failed');
      flipProgram(loaded);
      return performance.now() - started;
    };
    const list = membersOf(rules.groups, rules.groups);
    loaded.members.replace(list);
    const first = elapsed(list);
    const next = { number: 5_000, keys: [keyOf(1).key, keyOf(2).key] };
    const sets = list.sets.slice();
    sets[0] = next.number;
    const second = elapsed({ ...list, added: [...list.added, next], sets });
    const label = `100,000 ${denies ? 'allow and deny' : 'allow'} rules of 1,000 selectors`;
    const newDeployment = { what: `${label}: a new deployment`, value: second, unit: 'ms' };
    return [
      { what: `${label}: the first program`, value: first, unit: 'ms' },
      denies ? newDeployment : { ...newDeployment, atMost: 400 },
    ];
  } finally {
    loaded.close();
  }
}

async function run(): Promise<readonly Row[]> {
  return [...lookupRows(), ...walkRows(), ...openingRows(), ...deploymentRows(false), ...deploymentRows(true)];
}

/**
 * Measures packets of sources that Kubernetes selectors select, relative to static sources, and how long a
 * change of members and the program for a new deployment take.
 */
export const membersBench: Bench = { name: 'members', run };
