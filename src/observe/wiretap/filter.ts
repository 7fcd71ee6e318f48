import { EVENT_TYPE } from '#dataplane/events/event.js';
import { PORT_PROTOCOLS, type Prefix, type Range, type Verdict } from '#policy/model.js';
import type { SeenLookup } from '#policy/seen-lookup.js';
import type { AddressNames } from '../address-names.js';
import type { Deciders, NamedDecider } from '../deciders.js';
import { AT, recordType, startOf, VERDICT_NAMES, verdictName } from './record.js';

export const WIRETAP_TYPES = ['flow', 'flow_end', 'verdict', 'dns', 'tls', 'http'] as const;
export const WIRETAP_VERDICTS = ['allow', 'deny', 'audit', 'redirect'] as const;

/** Each list is OR, and an empty one asks for nothing; they are ANDed. */
export type WiretapFilter = {
  readonly sources: readonly Prefix[];
  readonly destinations: readonly Prefix[];
  /** Of either side. */
  readonly ports: readonly Range[];
  readonly protocols: readonly number[];
  /** Names in lower case, each with `*.` before it or not. */
  readonly hostnames: readonly string[];
  readonly groups: readonly string[];
  readonly rules: readonly string[];
  /** `deny` is also what was dropped without a verdict. */
  readonly verdicts: readonly (typeof WIRETAP_VERDICTS)[number][];
  readonly types: readonly (typeof WIRETAP_TYPES)[number][];
};

export type Surrounded = { readonly deciders: Deciders; readonly names: AddressNames };
type RecordTest = (words: Uint32Array, at: number) => boolean;

/** A filter made ready: the cheapest tests come first, and what is not asked for is not tested. */
export class CompiledFilter {
  readonly wantsLookups: boolean;
  readonly wantsFlows: boolean;
  readonly #records: readonly RecordTest[];
  readonly #lookups: readonly ((lookup: SeenLookup) => boolean)[];

  constructor(filter: WiretapFilter, { deciders, names }: Surrounded) {
    const wants = (type: (typeof WIRETAP_TYPES)[number]): boolean =>
      filter.types.length === 0 || filter.types.includes(type);
    const ofPackets = filter.destinations.length + filter.ports.length + filter.protocols.length > 0;
    this.wantsLookups = wants('dns') && !ofPackets;
    this.wantsFlows = wants('flow') || wants('flow_end');
    const isNamed = nameTest(filter.hostnames);
    const isDecided = deciderTest(filter);
    const records: [asked: boolean, test: RecordTest][] = [
      [filter.types.length > 0, (words, at) => wants(recordType(words[at + AT.kind] as number))],
      [
        filter.verdicts.length > 0,
        (words, at) => filter.verdicts.includes(shownVerdict(words[at + AT.kind] as number)),
      ],
      [filter.protocols.length > 0, (words, at) => filter.protocols.includes((words[at + AT.kind] as number) >>> 24)],
      [filter.sources.length > 0, addressTest(filter.sources, AT.source)],
      [filter.destinations.length > 0, addressTest(filter.destinations, AT.destination)],
      [filter.ports.length > 0, portTest(filter.ports)],
      [
        isDecided !== null,
        (words, at) =>
          isDecided?.(deciders.ofHit(words[at + AT.hit] as number, words[at + AT.hitCheck] as number)) === true,
      ],
      [
        isNamed !== null,
        (words, at) =>
          names.of(words[at + AT.destination] as number).some((name) => isNamed?.(name)) ||
          names.of(words[at + AT.source] as number).some((name) => isNamed?.(name)),
      ],
    ];
    this.#records = records.filter(([asked]) => asked).map(([, test]) => test);
    const lookups: [asked: boolean, test: (lookup: SeenLookup) => boolean][] = [
      [filter.sources.length > 0, ({ source }) => filter.sources.some((prefix) => contains(prefix, source))],
      [filter.verdicts.length > 0, ({ word }) => filter.verdicts.includes(VERDICT_NAMES[word & 7] ?? 'deny')],
      [isNamed !== null, ({ hostname }) => isNamed?.(hostname) === true],
      [isDecided !== null, ({ generation, word }) => isDecided?.(deciders.ofWord(generation, word)) === true],
    ];
    this.#lookups = lookups.filter(([asked]) => asked).map(([, test]) => test);
  }

  matches(words: Uint32Array, index: number): boolean {
    const at = startOf(index);
    for (const test of this.#records) if (!test(words, at)) return false;
    return true;
  }

  matchesLookup(lookup: SeenLookup): boolean {
    return this.wantsLookups && this.#lookups.every((test) => test(lookup));
  }
}

/** What was dropped without a verdict is denied; what nobody judged and passes, such as foreign flows, is allowed. */
function shownVerdict(kind: number): Verdict {
  return verdictName(kind) ?? ((kind & 0xff) === EVENT_TYPE.dropped ? 'deny' : 'allow');
}

function addressTest(prefixes: readonly Prefix[], field: number): RecordTest {
  return (words, at) => {
    const address = words[at + field] as number;
    return prefixes.some((prefix) => contains(prefix, address));
  };
}

function contains({ address, length }: Prefix, tested: number): boolean {
  return length === 0 || (tested ^ address) >>> (32 - length) === 0;
}

function portTest(ranges: readonly Range[]): RecordTest {
  const isIn = (port: number): boolean => ranges.some(({ low, high }) => port >= low && port <= high);
  return (words, at) => {
    if (!PORT_PROTOCOLS.includes((words[at + AT.kind] as number) >>> 24)) return false;
    const ports = words[at + AT.ports] as number;
    return isIn(ports & 0xffff) || isIn(ports >>> 16);
  };
}

function nameTest(patterns: readonly string[]): ((name: string) => boolean) | null {
  if (patterns.length === 0) return null;
  const exact = new Set(patterns.filter((pattern) => !pattern.startsWith('*.')));
  const suffixes = patterns.filter((pattern) => pattern.startsWith('*.')).map((pattern) => pattern.slice(1));
  return (name) => exact.has(name) || suffixes.some((suffix) => name.endsWith(suffix));
}

function deciderTest({ groups, rules }: WiretapFilter): ((decider: NamedDecider) => boolean) | null {
  if (groups.length + rules.length === 0) return null;
  return ({ sourceGroup, rule }) =>
    (groups.length === 0 || (sourceGroup !== null && groups.includes(sourceGroup))) &&
    (rules.length === 0 || (rule !== null && rules.includes(rule)));
}
