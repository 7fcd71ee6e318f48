import { itemAt, u32At } from '#arrays/read.js';
import type { FlowFilter } from '#contracts/datapath/datapath.js';
import { FLOW_STATE, FLOW_STATES } from '#contracts/datapath/datapath-numbers.js';
import { PORT_PROTOCOLS, type Prefix, type Range } from '#contracts/policy/policy-model.js';
import { isRefused, VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { epochOf } from '#dataplane/abi/active-word.js';
import { FLOW_KEY_OFFSETS, FLOW_OFFSETS, sinceFlush } from '#dataplane/abi/flow.js';
import { mask } from '#policy/model/ip-address.js';

/** Tests the undecoded flow (`struct flow`, then `struct tally`) that begins at index `at` of `words`. */
export type FlowTest = (words: Uint32Array, at: number) => boolean;

export type FilterContext = {
  /**
   * An array with the indexes of the map `hits`: the low 32 bits of the identity of the rule that counts
   * there if the filter selects that rule, else 0. Undefined if the filter names no rule or group.
   */
  readonly checks: Uint32Array | undefined;
  /** The epoch (activation number) of the policy in force; a flow of another epoch is not `current`. */
  readonly epoch: number;
};

const LOW_ADDRESS = FLOW_KEY_OFFSETS.low_address / 4;
const HIGH_ADDRESS = FLOW_KEY_OFFSETS.high_address / 4;
const PORTS = FLOW_KEY_OFFSETS.low_port / 4;
const PROTOCOL = FLOW_KEY_OFFSETS.protocol / 4;
const WORD = FLOW_OFFSETS.judgement / 4;
const ACTIVE_WORD = WORD + 1;
/** The 32-bit word that has the flow's state in its lowest byte and the flags in the next byte. */
const STATE = FLOW_OFFSETS.state / 4;
const BYTES = FLOW_OFFSETS.bytes / 4;
const FOLDED_BYTES = FLOW_OFFSETS.folded_bytes / 4;
const TOTAL_BYTES = FLOW_OFFSETS.total_bytes / 4;
const HIT = FLOW_OFFSETS.hit / 4;
const CHECK = FLOW_OFFSETS.hit_check / 4;
const BY_HIGH = 1 << 8;
const FOREIGN = 2 << 8;

/**
 * Compiles a filter into a function that tests undecoded flows. So flows that do not match are not decoded.
 */
export function flowTest(filter: FlowFilter, { checks, epoch }: FilterContext): FlowTest {
  const tests: FlowTest[] = [];
  const add = (wanted: boolean, test: FlowTest): void => {
    if (wanted) tests.push(test);
  };
  const { foreign, current, suspended, minBytes } = filter;
  const addresses = (prefixes: readonly Prefix<number>[], side: 0 | 1): void => {
    const masks = prefixes.map(({ length }) => mask(0xffff_ffff, length));
    add(prefixes.length > 0, (words, at) => {
      const byHigh = (u32At(words, at + STATE) & BY_HIGH) !== 0;
      const address = u32At(words, at + (byHigh === (side === 0) ? HIGH_ADDRESS : LOW_ADDRESS));
      return prefixes.some((prefix, index) => (address & itemAt(masks, index)) >>> 0 === prefix.address);
    });
  };
  const ports = (ranges: readonly Range[], sides: readonly (0 | 1)[]): void =>
    add(ranges.length > 0, (words, at) => {
      const byHigh = (u32At(words, at + STATE) & BY_HIGH) !== 0;
      const both = u32At(words, at + PORTS);
      return sides.some((side) => {
        const port = byHigh === (side === 0) ? both >>> 16 : both & 0xffff;
        return ranges.some(({ low, high }) => port >= low && port <= high);
      });
    });

  addresses(filter.sources, 0);
  addresses(filter.destinations, 1);
  const portsWanted = filter.ports.length + filter.sourcePorts.length + filter.destinationPorts.length > 0;
  const protocols = flags(256, filter.protocols.length > 0 ? filter.protocols : PORT_PROTOCOLS);
  const portProtocols = flags(256, PORT_PROTOCOLS);
  add(filter.protocols.length > 0 || portsWanted, (words, at) => {
    const protocol = u32At(words, at + PROTOCOL) & 0xff;
    return protocols[protocol] === 1 && (!portsWanted || portProtocols[protocol] === 1);
  });
  ports(filter.ports, [0, 1]);
  ports(filter.sourcePorts, [0]);
  ports(filter.destinationPorts, [1]);
  const states = flags(
    FLOW_STATES,
    filter.states.map((state) => FLOW_STATE[state]),
  );
  add(filter.states.length > 0, (words, at) => states[u32At(words, at + STATE) & 0xff] === 1);
  const verdicts = flags(
    8,
    filter.verdicts.map((verdict) => VERDICT_NUMBER[verdict]),
  );
  add(filter.verdicts.length > 0, (words, at) => verdicts[u32At(words, at + WORD) & 7] === 1);
  add(foreign !== undefined, (words, at) => ((u32At(words, at + STATE) & FOREIGN) !== 0) === foreign);
  add(current !== undefined, (words, at) => isCurrent(words, at, epoch) === current);
  add(suspended !== undefined, (words, at) => isSuspended(words, at) === suspended);
  add(minBytes > 0, (words, at) => bytesOf(words, at, 0) + bytesOf(words, at, 1) >= minBytes);
  if (checks !== undefined) {
    add(true, (words, at) => {
      const check = u32At(checks, u32At(words, at + HIT));
      return check !== 0 && check === words[at + CHECK];
    });
  }
  return (words, at) => tests.every((test) => test(words, at));
}

/**
 * Returns whether the policy in force (its activation number is `epoch`) decided the flow. A foreign flow
 * (which no rule decided) always counts as current, because no activation changes how the datapath handles
 * it.
 */
function isCurrent(words: Uint32Array, at: number, epoch: number): boolean {
  return (u32At(words, at + STATE) & FOREIGN) !== 0 || epochOf(u32At(words, at + ACTIVE_WORD)) === epoch;
}

function isSuspended(words: Uint32Array, at: number): boolean {
  return (u32At(words, at + STATE) & FOREIGN) === 0 && isRefused(u32At(words, at + WORD));
}

function bytesOf(words: Uint32Array, at: number, side: 0 | 1): number {
  const total = at + TOTAL_BYTES + 2 * side;
  const more = sinceFlush(u32At(words, at + BYTES + side), u32At(words, at + FOLDED_BYTES + side));
  return u32At(words, total + 1) * 0x1_0000_0000 + u32At(words, total) + more;
}

function flags(size: number, numbers: readonly number[]): Uint8Array {
  const found = new Uint8Array(size);
  for (const number of numbers) found[number] = 1;
  return found;
}

/** Returns a filter that matches every flow; the fields of `given` replace those of that filter. */
export function anyFlow(given: Partial<FlowFilter> = {}): FlowFilter {
  return {
    sources: [],
    destinations: [],
    ports: [],
    sourcePorts: [],
    destinationPorts: [],
    protocols: [],
    groups: [],
    rules: [],
    verdicts: [],
    states: [],
    foreign: undefined,
    current: undefined,
    suspended: undefined,
    minBytes: 0,
    ...given,
  };
}
