import { itemAt, u8At, u16At, u32At } from '#arrays/read.js';
import { type SeenFlow, type SeenTime, seenFlow, seenTime } from '#contracts/analysis/seen-flow.js';
import { FOLDED, FOLDED_BITS, type SeenFlows, VERDICT_BITS } from '#contracts/analysis/seen-flows.js';
import { PORT_PROTOCOLS, type Prefix, type Range, type Verdict } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { nameTest } from '#observe/names/name-test.js';
import { formatAddress, mask } from '#policy/model/ip-address.js';

/** An empty list selects all flows. A folded flow is in a destination network if both overlap. */
export type SeenFlowQuery = {
  readonly sources: readonly Prefix<number>[];
  readonly destinations: readonly Prefix<number>[];
  /** Destination ports. */
  readonly ports: readonly Range[];
  readonly protocols: readonly number[];
  /** Names, or `*.` before a name. */
  readonly hostnames: readonly string[];
  /** The verdict of the last one. */
  readonly verdicts: readonly Verdict[];
  /** Only flows that were seen since then, in seconds since 1970. */
  readonly sinceS: number;
  /** `last_seen`: the latest first. `count`: the most frequent first. */
  readonly order: 'last_seen' | 'count';
  readonly limit: number;
};

/** `matched`, `connections` and `denied` are about all flows that match. */
export type SeenFlowPage = {
  readonly matched: number;
  readonly connections: number;
  readonly denied: number;
  readonly flows: readonly SeenFlow[];
  readonly coverage: SeenTime;
};

/** Returns the seen flows that match a query. */
export function listedFlows(seen: SeenFlows, query: SeenFlowQuery): SeenFlowPage {
  const matches = testOf(seen, query);
  const rows: number[] = [];
  let connections = 0;
  let denied = 0;
  for (let row = 0; row < seen.count; row++) {
    if (!matches(row)) continue;
    rows.push(row);
    connections += u32At(seen.passed, row);
    denied += u32At(seen.denied, row);
  }
  const placeOf = (row: number): number =>
    query.order === 'count' ? u32At(seen.passed, row) + u32At(seen.denied, row) : u32At(seen.last, row);
  rows.sort((one, other) => placeOf(other) - placeOf(one) || one - other);
  const flows = rows.slice(0, query.limit).map((row) => seenFlow(seen, row, formatAddress));
  return { matched: rows.length, connections, denied, flows, coverage: seenTime(seen) };
}

function testOf(seen: SeenFlows, query: SeenFlowQuery): (row: number) => boolean {
  const { sources, destinations, services, last, nameLists, names } = seen;
  const { ports, protocols, sinceS } = query;
  const verdicts = query.verdicts.map((verdict): number => VERDICT_NUMBER[verdict]);
  const isNamed = nameTest(query.hostnames);
  const isIn = (networks: readonly Prefix<number>[], address: number, bits: number): boolean =>
    networks.length === 0 ||
    networks.some(({ address: network, length }) => {
      const common = Math.min(length, bits);
      return mask(address, common) === mask(network, common);
    });
  return (row) => {
    if (u32At(last, row) < sinceS) return false;
    const service = u32At(services, row);
    const isFolded = service >= FOLDED;
    const protocol = (service >>> 16) & 255;
    const port = isFolded || !PORT_PROTOCOLS.includes(protocol) ? null : service & 0xffff;
    return (
      isIn(query.sources, u32At(sources, row), 32) &&
      isIn(query.destinations, u32At(destinations, row), isFolded ? FOLDED_BITS : 32) &&
      (ports.length === 0 || (port !== null && ports.some(({ low, high }) => low <= port && port <= high))) &&
      (protocols.length === 0 || protocols.includes(protocol)) &&
      (verdicts.length === 0 || verdicts.includes(u8At(seen.verdicts, row) & VERDICT_BITS)) &&
      (isNamed === null || (!isFolded && itemAt(names, u16At(nameLists, row)).some(isNamed)))
    );
  };
}
