import { bitsOf, mask } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import type { FlowFilter } from '#contracts/datapath/datapath.js';
import { FLOW_STATE, FLOW_STATES } from '#contracts/datapath/datapath-numbers.js';
import { type Address, PORT_PROTOCOLS, type Prefix, type Range } from '#contracts/policy/policy-model.js';
import { isRefused, VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { epochOf } from '#dataplane/abi/active-word.js';
import { type FlowLayout, sinceFlush } from '#dataplane/abi/flow.js';

/** Tests the undecoded flow (`struct flow`, then `struct tally`) that begins at index `at` of `words`. */
export type FlowTest = (words: Uint32Array, at: number) => boolean;

export type FilterContext = {
  /** The layout of the flows of one IP family. */
  readonly layout: FlowLayout<Address>;
  /**
   * An array with the indexes of the map `hits`: the low 32 bits of the identity of the rule that counts
   * there if the filter selects that rule, else 0. Undefined if the filter names no rule or group.
   */
  readonly checks: Uint32Array | undefined;
  /** The epoch (activation number) of the policy in force; a flow of another epoch is not `current`. */
  readonly epoch: number;
};

const BY_HIGH = 1 << 8;
const FOREIGN = 2 << 8;

/**
 * Compiles a filter into a function that tests flows in their binary form, so that flows that do not match
 * need not be decoded.
 */
export function flowTest(filter: FlowFilter, { layout, checks, epoch }: FilterContext): FlowTest {
  const places = placesIn(layout);
  const { STATE, WORD } = places;
  const tests: FlowTest[] = [];
  const add = (wanted: boolean, test: FlowTest): void => {
    if (wanted) tests.push(test);
  };
  const { foreign, current, suspended, minBytes } = filter;
  const addresses = (prefixes: readonly Prefix[], side: 0 | 1): void => {
    const masked = prefixes.filter(({ address }) => bitsOf(address) === layout.addressBits).map(maskedWords);
    add(prefixes.length > 0, (words, at) => {
      const byHigh = (u32At(words, at + STATE) & BY_HIGH) !== 0;
      const address = at + (byHigh === (side === 0) ? places.HIGH_ADDRESS : places.LOW_ADDRESS);
      return masked.some((prefix) =>
        prefix.every(({ bits, value }, word) => (u32At(words, address + word) & bits) >>> 0 === value),
      );
    });
  };
  const ports = (ranges: readonly Range[], sides: readonly (0 | 1)[]): void =>
    add(ranges.length > 0, (words, at) => {
      const byHigh = (u32At(words, at + STATE) & BY_HIGH) !== 0;
      const both = u32At(words, at + places.PORTS);
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
    const protocol = u32At(words, at + places.PROTOCOL) & 0xff;
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
  add(current !== undefined, (words, at) => isCurrent(words, at, places, epoch) === current);
  add(suspended !== undefined, (words, at) => isSuspended(words, at, places) === suspended);
  add(minBytes > 0, (words, at) => bytesOf(words, at, places, 0) + bytesOf(words, at, places, 1) >= minBytes);
  if (checks !== undefined) {
    add(true, (words, at) => {
      const check = u32At(checks, u32At(words, at + places.HIT));
      return check !== 0 && check === words[at + places.CHECK];
    });
  }
  return (words, at) => tests.every((test) => test(words, at));
}

/** Returns the indexes of the fields of a flow in 32-bit words. */
type Places = ReturnType<typeof placesIn>;

function placesIn({ offsets, keyOffsets }: FlowLayout<Address>) {
  return {
    LOW_ADDRESS: keyOffsets.low_address / 4,
    HIGH_ADDRESS: keyOffsets.high_address / 4,
    PORTS: keyOffsets.low_port / 4,
    PROTOCOL: keyOffsets.protocol / 4,
    WORD: offsets.judgement / 4,
    ACTIVE_WORD: offsets.judgement / 4 + 1,
    /** The 32-bit word that has the flow's state in its lowest byte and the flags in the next byte. */
    STATE: offsets.state / 4,
    BYTES: offsets.bytes / 4,
    FOLDED_BYTES: offsets.folded_bytes / 4,
    TOTAL_BYTES: offsets.total_bytes / 4,
    HIT: offsets.hit / 4,
    CHECK: offsets.hit_check / 4,
  };
}

/**
 * Returns the mask and the value of each 32-bit word of the addresses in a prefix; the lowest word comes
 * first.
 */
function maskedWords({ address, length }: Prefix): readonly { readonly bits: number; readonly value: number }[] {
  const count = bitsOf(address) / 32;
  return Array.from({ length: count }, (_, word) => {
    const covered = Math.max(0, Math.min(32, length - 32 * (count - 1 - word)));
    const bits = mask(0xffff_ffff, covered);
    const value = Number(BigInt.asUintN(32, BigInt(address) >> BigInt(32 * word)));
    return { bits, value: (value & bits) >>> 0 };
  });
}

/**
 * Returns whether the policy in force (its activation number is `epoch`) decided the flow. A foreign flow
 * (which no rule decided) always counts as current, because no activation changes how the datapath handles
 * it.
 */
function isCurrent(words: Uint32Array, at: number, { STATE, ACTIVE_WORD }: Places, epoch: number): boolean {
  return (u32At(words, at + STATE) & FOREIGN) !== 0 || epochOf(u32At(words, at + ACTIVE_WORD)) === epoch;
}

function isSuspended(words: Uint32Array, at: number, { STATE, WORD }: Places): boolean {
  return (u32At(words, at + STATE) & FOREIGN) === 0 && isRefused(u32At(words, at + WORD));
}

function bytesOf(words: Uint32Array, at: number, { TOTAL_BYTES, BYTES, FOLDED_BYTES }: Places, side: 0 | 1): number {
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
