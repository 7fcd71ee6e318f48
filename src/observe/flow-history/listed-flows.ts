import { formatAddress, mask, ofFamily } from '#addresses/ip-address.js';
import { itemAt, u8At, u16At, u32At } from '#arrays/read.js';
import { type SeenFlow, type SeenTime, seenFlow, seenTime } from '#contracts/analysis/seen-flow.js';
import {
  type FlowRows,
  FOLDED_DESTINATION,
  lengthsOf,
  type SeenFlows,
  VERDICT_BITS,
} from '#contracts/analysis/seen-flows.js';
import { ADDRESS_WORDS, wordsOf } from '#contracts/policy/address-words.js';
import {
  FAMILIES,
  type Family,
  PORT_PROTOCOLS,
  type Prefix,
  type Range,
  type Verdict,
} from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { nameTest } from '#observe/names/name-test.js';

/**
 * A filter of recorded flows. An empty list selects all flows. A record that combines several flows (folded)
 * matches a network if its own network overlaps with it.
 */
export type SeenFlowQuery = {
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
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
  const found = FAMILIES.map((family) => matchedIn(seen, family, query));
  const placed = found.flatMap(({ first }) => first).sort((one, other) => other.place - one.place);
  const sum = (name: 'matched' | 'connections' | 'denied'): number =>
    found.reduce((total, each) => total + each[name], 0);
  return {
    matched: sum('matched'),
    connections: sum('connections'),
    denied: sum('denied'),
    flows: placed.slice(0, query.limit).map(({ family, row }) => seenFlow(seen, family, row, formatAddress)),
    coverage: seenTime(seen),
  };
}

/** A row of the table of a family. Rows with a larger place come first. */
type Placed = { readonly family: Family; readonly row: number; readonly place: number };

/** Returns the first rows of a family that match a query, and the sums of all of them. */
function matchedIn(seen: SeenFlows, family: Family, query: SeenFlowQuery) {
  const { passed, denied, last, count } = seen[family];
  const matches = testOf(seen, family, query);
  const rows: Placed[] = [];
  const sums = { connections: 0, denied: 0 };
  for (let row = 0; row < count; row++) {
    if (!matches(row)) continue;
    const times = u32At(passed, row) + u32At(denied, row);
    rows.push({ family, row, place: query.order === 'count' ? times : u32At(last, row) });
    sums.connections += u32At(passed, row);
    sums.denied += u32At(denied, row);
  }
  rows.sort((one, other) => other.place - one.place);
  return { matched: rows.length, ...sums, first: rows.slice(0, query.limit) };
}

type RowTest = (row: number) => boolean;

function testOf(seen: SeenFlows, family: Family, query: SeenFlowQuery): RowTest {
  const { services, last, nameLists, verdicts } = seen[family];
  const { ports, protocols, sinceS } = query;
  const wanted = query.verdicts.map((verdict): number => VERDICT_NUMBER[verdict]);
  const isNamed = nameTest(query.hostnames);
  const isFromWanted = networkTest(seen[family], family, query.sources, 'source');
  const isToWanted = networkTest(seen[family], family, query.destinations, 'destination');
  return (row) => {
    if (u32At(last, row) < sinceS) return false;
    const service = u32At(services, row);
    const hasNetwork = service >= FOLDED_DESTINATION;
    const protocol = (service >>> 16) & 255;
    const port = hasNetwork || !PORT_PROTOCOLS.includes(protocol) ? null : service & 0xffff;
    return (
      isFromWanted(row) &&
      isToWanted(row) &&
      (ports.length === 0 || (port !== null && ports.some(({ low, high }) => low <= port && port <= high))) &&
      (protocols.length === 0 || protocols.includes(protocol)) &&
      (wanted.length === 0 || wanted.includes(u8At(verdicts, row) & VERDICT_BITS)) &&
      (isNamed === null || (!hasNetwork && itemAt(seen.names, u16At(nameLists, row)).some(isNamed)))
    );
  };
}

/** Returns a test whether the source or the destination of a row overlaps with one of the networks. */
function networkTest(
  rows: FlowRows,
  family: Family,
  networks: readonly Prefix[],
  end: 'source' | 'destination',
): RowTest {
  if (networks.length === 0) return () => true;
  const words = ADDRESS_WORDS[family];
  const column = end === 'source' ? rows.sources : rows.destinations;
  const own = ofFamily(networks, family).map(({ address, length }) => ({ network: wordsOf(address), length }));
  return (row) => {
    const length = lengthsOf(u32At(rows.services, row), family)[end];
    return own.some(({ network, length: ofNetwork }) => {
      const common = Math.min(length, ofNetwork);
      for (let word = 0; word * 32 < common; word++) {
        const differing = u32At(column, row * words + word) ^ itemAt(network, word);
        if (mask(differing >>> 0, Math.min(32, common - 32 * word)) !== 0) return false;
      }
      return true;
    });
  };
}
