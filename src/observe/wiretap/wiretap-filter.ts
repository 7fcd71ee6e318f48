import { covers, ofFamily } from '#addresses/ip-address.js';
import { itemAt, u32At } from '#arrays/read.js';
import type { FlowFilter } from '#contracts/datapath/datapath.js';
import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import {
  type Address,
  IPPROTO,
  PORT_PROTOCOLS,
  type Prefix,
  type Range,
  type Verdict,
} from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import { EVENT_TYPE } from '#dataplane/events/event.js';
import type { AddressNames } from '#observe/names/address-names.js';
import { nameTest } from '#observe/names/name-test.js';
import type { NamedDecider, RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import { AT, addressAt, isOfIpv6, recordType, startOf, verdictName } from '#observe/wiretap/messages/event-record.js';
import type { Seen } from './seen-batch.js';

const FLOW_TYPES = ['flow', 'flow_end', 'flow_suspend', 'flow_resume'] as const;
export const WIRETAP_TYPES = [...FLOW_TYPES, 'verdict', 'dns', 'tls', 'http'] as const;
export const WIRETAP_VERDICTS = ['allow', 'deny', 'audit', 'redirect'] as const;

/**
 * A wiretap filter. An event matches if every list matches. A list matches if it is empty or contains a
 * value of the event.
 */
export type WiretapFilter = Pick<
  FlowFilter,
  'sources' | 'destinations' | 'ports' | 'protocols' | 'groups' | 'rules'
> & {
  /** Hostnames in lower case. `*.example.com` matches all names below `example.com`. */
  readonly hostnames: readonly string[];
  /** Verdicts to match. `deny` also matches packets that were dropped for another reason than a verdict. */
  readonly verdicts: readonly (typeof WIRETAP_VERDICTS)[number][];
  readonly types: readonly (typeof WIRETAP_TYPES)[number][];
};

export type Surrounded = { readonly ruleNameResolver: RuleNameResolver; readonly names: AddressNames };
type RecordTest = (words: Uint32Array, at: number) => boolean;

/**
 * A wiretap filter prepared for evaluation. `testOf` evaluates only the lists that are not empty, and begins
 * with the cheapest tests.
 */
export class CompiledFilter {
  readonly wantsLookups: boolean;
  readonly wantsFlows: boolean;
  readonly wantsAllowedConnections: boolean;
  readonly #wantsConnections: boolean;
  readonly #records: readonly RecordTest[];
  readonly #lookups: readonly ((lookup: SeenLookup) => boolean)[];
  readonly #connections: readonly ((seen: SeenConnection) => boolean)[];

  constructor(filter: WiretapFilter, { ruleNameResolver, names }: Surrounded) {
    const wants = (type: (typeof WIRETAP_TYPES)[number]): boolean =>
      filter.types.length === 0 || filter.types.includes(type);
    const ofPackets = filter.destinations.length + filter.ports.length + filter.protocols.length > 0;
    this.wantsLookups = wants('dns') && !ofPackets;
    this.wantsFlows = FLOW_TYPES.some(wants);
    const isOfTcp = filter.protocols.length === 0 || filter.protocols.includes(IPPROTO.tcp);
    this.#wantsConnections = (wants('tls') || wants('http')) && isOfTcp;
    const wantsAllowed = filter.verdicts.length === 0 || filter.verdicts.includes('allow');
    this.wantsAllowedConnections = this.#wantsConnections && wantsAllowed;
    const isNamed = nameTest(filter.hostnames);
    const isDecided = deciderTest(filter);
    const records: [asked: boolean, test: RecordTest][] = [
      [filter.types.length > 0, (words, at) => wants(recordType(u32At(words, at + AT.kind)))],
      [filter.verdicts.length > 0, (words, at) => filter.verdicts.includes(shownVerdict(u32At(words, at + AT.kind)))],
      [filter.protocols.length > 0, (words, at) => filter.protocols.includes(u32At(words, at + AT.kind) >>> 24)],
      [filter.sources.length > 0, addressTest(filter.sources, AT.source)],
      [filter.destinations.length > 0, addressTest(filter.destinations, AT.destination)],
      [filter.ports.length > 0, portTest(filter.ports)],
      [
        isDecided !== null,
        (words, at) =>
          isDecided?.(ruleNameResolver.ofHit(u32At(words, at + AT.hit), u32At(words, at + AT.hitCheck))) === true,
      ],
      [
        isNamed !== null,
        (words, at) =>
          [AT.destination, AT.source].some((field) => {
            const address = addressAt(words, at + field, u32At(words, at + AT.details));
            return names.of(address).some((name) => isNamed?.(name));
          }),
      ],
    ];
    this.#records = records.filter(([asked]) => asked).map(([, test]) => test);
    const lookups: [asked: boolean, test: (lookup: SeenLookup) => boolean][] = [
      [filter.sources.length > 0, ({ source }) => filter.sources.some((prefix) => covers(prefix, source))],
      [filter.verdicts.length > 0, ({ word }) => filter.verdicts.includes(verdictOf(word) ?? 'deny')],
      [isNamed !== null, ({ hostname }) => isNamed?.(hostname) === true],
      [isDecided !== null, ({ generation, word }) => isDecided?.(ruleNameResolver.ofWord(generation, word)) === true],
    ];
    this.#lookups = lookups.filter(([asked]) => asked).map(([, test]) => test);
    const connections: [asked: boolean, test: (seen: SeenConnection) => boolean][] = [
      [filter.types.length > 0, ({ kind }) => wants(kind)],
      [filter.verdicts.length > 0, ({ verdict }) => filter.verdicts.includes(verdict)],
      [filter.sources.length > 0, ({ source }) => filter.sources.some((prefix) => covers(prefix, source))],
      [
        filter.destinations.length > 0,
        ({ destination }) => filter.destinations.some((prefix) => covers(prefix, destination)),
      ],
      [
        filter.ports.length > 0,
        ({ sourcePort, destinationPort }) => isIn(filter.ports, sourcePort) || isIn(filter.ports, destinationPort),
      ],
      [
        isDecided !== null,
        ({ generation, decider }) => isDecided?.(ruleNameResolver.ofNames(generation, decider)) === true,
      ],
      [
        isNamed !== null,
        ({ sni, http, source, destination }) =>
          [sni ?? '', http?.host ?? '', ...names.of(destination), ...names.of(source)].some((name) => isNamed?.(name)),
      ],
    ];
    this.#connections = connections.filter(([asked]) => asked).map(([, test]) => test);
  }

  /**
   * Returns whether an event of this kind can match the filter. Returns true for kernel events, because only
   * `testOf` can tell.
   */
  wants(kind: Seen['kind']): boolean {
    switch (kind) {
      case 'events':
        return true;
      case 'lookups':
        return this.wantsLookups;
      case 'connections':
        return this.#wantsConnections;
    }
  }

  /**
   * Returns a function that takes the index of an event in the batch, and returns whether the event matches
   * the filter.
   */
  testOf(seen: Seen): (index: number) => boolean {
    if (!this.wants(seen.kind)) return () => false;
    switch (seen.kind) {
      case 'events':
        return recordTest(this.#records, seen.batch.words);
      case 'lookups':
        return (index) => this.#lookups.every((test) => test(itemAt(seen.lookups, index)));
      case 'connections':
        return (index) => this.#connections.every((test) => test(itemAt(seen.connections, index)));
    }
  }
}

function recordTest(tests: readonly RecordTest[], words: Uint32Array): (index: number) => boolean {
  return (index) => {
    const at = startOf(index);
    for (const test of tests) if (!test(words, at)) return false;
    return true;
  };
}

/**
 * Returns the verdict that is compared with the list `verdicts` of the filter. A dropped packet without a
 * verdict counts as deny. A passed packet without a verdict counts as allow: the packet belongs to a flow
 * from an interface that is not policed.
 */
function shownVerdict(kind: number): Verdict {
  return (kind & 0xff) === EVENT_TYPE.dropped ? 'deny' : (verdictName(kind) ?? 'allow');
}

function addressTest(prefixes: readonly Prefix[], field: number): RecordTest {
  const ipv4 = ofFamily(prefixes, 'ipv4');
  const ipv6 = ofFamily(prefixes, 'ipv6');
  return (words, at) => {
    const details = u32At(words, at + AT.details);
    const [matching, address]: [readonly Prefix[], Address] = isOfIpv6(details)
      ? [ipv6, ipv6.length === 0 ? 0n : addressAt(words, at + field, details)]
      : [ipv4, u32At(words, at + field)];
    return matching.some((prefix) => covers(prefix, address));
  };
}

function portTest(ranges: readonly Range[]): RecordTest {
  return (words, at) => {
    if (!PORT_PROTOCOLS.includes(u32At(words, at + AT.kind) >>> 24)) return false;
    const ports = u32At(words, at + AT.ports);
    return isIn(ranges, ports & 0xffff) || isIn(ranges, ports >>> 16);
  };
}

const isIn = (ranges: readonly Range[], port: number): boolean =>
  ranges.some(({ low, high }) => port >= low && port <= high);

function deciderTest({ groups, rules }: WiretapFilter): ((decider: NamedDecider) => boolean) | null {
  if (groups.length + rules.length === 0) return null;
  return ({ sourceGroup, rule }) =>
    (groups.length === 0 || (sourceGroup !== null && groups.includes(sourceGroup))) &&
    (rules.length === 0 || (rule !== null && rules.includes(rule)));
}
