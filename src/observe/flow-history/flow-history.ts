import { largest } from '#arrays/extremes.js';
import { u32At } from '#arrays/read.js';
import { type FlowRows, type SeenFlows, UNKNOWN_NAMES } from '#contracts/analysis/seen-flows.js';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import { FAMILIES, type Family, ICMP, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import type { EventBatch } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_TYPE } from '#dataplane/events/event.js';
import type { AddressNames } from '#observe/names/address-names.js';
import { AT, addressAt, isOfIpv6, startOf, wide } from '#observe/wiretap/messages/event-record.js';
import { FlowTable, type Sighting } from './flow-table.js';
import { type RecordedHour, RecordedHours } from './recorded-hours.js';

export type FlowHistoryOptions = {
  /** For how many milliseconds a flow is kept after it was last seen. */
  readonly retentionMs: number;
  /** The maximum number of flows of each family. */
  readonly maxFlows: number;
};

/** The table of a family in the form in which it is stored. `removedS`: see `FlowTable`. */
type StoredRows = { readonly rows: FlowRows; readonly removedS: FlowTable['removedS'] };

/** The content of a history, in the form in which it is stored. */
export type FlowHistoryContent = Readonly<Record<Family, StoredRows>> & {
  readonly names: readonly (readonly string[])[];
  readonly hours: readonly RecordedHour[];
  readonly sinceS: number;
};

/** The maximum number of different lists of names, which limits memory. */
const NAME_LISTS = 2 ** 16 - 1;
/**
 * The longest time between two calls of `tick` that counts as recorded. A longer one means that the machine
 * slept.
 */
const LONGEST_TICK_S = 60;
/** Type and code of an echo request. */
const ECHO_REQUEST: Readonly<Record<Family, number>> = { ipv4: 8 * 256, ipv6: 128 * 256 };
const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);

/** Records which flows were seen, from the events of the datapath. */
export class FlowHistory {
  readonly #options: FlowHistoryOptions;
  readonly #tables: Readonly<Record<Family, FlowTable>>;
  readonly #hours: RecordedHours;
  readonly #sinceS: number;
  #names: (readonly string[])[];
  #numbers = new Map<string, number>();
  /** The numbers of lists that `AddressNames` holds, so that a known list needs no text. */
  #known = new WeakMap<readonly string[], number>();
  #isRecording = true;
  #tickedS: number;
  /** Number of events that were not recorded, because their source had used its share. */
  unrecorded = 0;

  constructor(options: FlowHistoryOptions, nowMs: number, stored: FlowHistoryContent | null = null) {
    this.#options = options;
    this.#tickedS = nowMs / 1_000;
    const table = (family: Family): FlowTable => {
      const made = new FlowTable(family, options.maxFlows);
      if (stored !== null) {
        const { rows, removedS } = stored[family];
        made.removedS = removedS;
        made.restore(rows, rows.count);
      }
      return made;
    };
    this.#tables = { ipv4: table('ipv4'), ipv6: table('ipv6') };
    this.#hours = new RecordedHours(stored?.hours);
    this.#sinceS = Math.floor(stored?.sinceS ?? nowMs / 1_000);
    this.#names = stored === null ? [[], []] : [...stored.names];
    this.#renumber();
  }

  get count(): number {
    return this.#tables.ipv4.count + this.#tables.ipv6.count;
  }

  /** The number of rows that stand for several flows. */
  get folded(): number {
    return this.#tables.ipv4.folded + this.#tables.ipv6.folded;
  }

  add(batch: EventBatch, names: AddressNames, nowMs: number): void {
    const { words, count } = batch;
    for (let index = 0; index < count; index++) this.#add(batch, words, startOf(index), names);
    const lost = batch.lost + batch.suppressed;
    if (lost > 0) this.#hours.add(nowMs / 1_000, { lost });
  }

  /** Says whether the datapath sends events from now on (D34). */
  setRecording(isRecording: boolean, nowMs: number): void {
    this.tick(nowMs);
    this.#isRecording = isRecording;
  }

  /** Adds the time since the last call to the recorded time. Must be called more often than once a minute. */
  tick(nowMs: number): void {
    const nowS = nowMs / 1_000;
    const recordedS = Math.min(LONGEST_TICK_S, nowS - this.#tickedS);
    if (this.#isRecording && recordedS > 0) this.#hours.add(nowS, { recordedS });
    this.#tickedS = nowS;
  }

  /** Returns a copy of the flows, and what they cover. */
  read(nowMs: number): SeenFlows {
    const { sinceS, names } = this.content(nowMs);
    const untilS = Math.floor(nowMs / 1_000);
    // A table without flows does not shorten the coverage: an earlier build recorded no IPv6.
    const kept = FAMILIES.map((family) => this.#tables[family]).filter(({ count }) => count > 0);
    const after = (kind: 'passed' | 'denied'): number =>
      largest([sinceS, ...kept.map(({ removedS }) => (removedS[kind] === 0 ? 0 : removedS[kind] + 1))]);
    const from = after('passed');
    const { recordedS, lost, unrecorded } = this.#hours.since(from);
    const rowsOf = (family: Family): FlowRows => ({
      ...this.#tables[family].shared(),
      count: this.#tables[family].count,
    });
    return {
      ipv4: rowsOf('ipv4'),
      ipv6: rowsOf('ipv6'),
      names,
      coverage: {
        sinceS: from,
        deniedSinceS: after('denied'),
        untilS,
        recordedS: Math.min(recordedS, untilS - from),
        isRecording: this.#isRecording,
        folded: this.folded,
        lost,
        unrecorded,
      },
    };
  }

  /** Returns the content to store. Its columns are valid until the next event. */
  content(nowMs: number): FlowHistoryContent {
    this.tick(nowMs);
    const beforeS = Math.floor((nowMs - this.#options.retentionMs) / 1_000);
    for (const family of FAMILIES) this.#tables[family].expire(beforeS);
    this.#hours.expire(beforeS);
    this.#renumber();
    const stored = (family: Family): StoredRows => {
      const { columns, count, removedS } = this.#tables[family];
      return { rows: { ...columns, count }, removedS };
    };
    return {
      ipv4: stored('ipv4'),
      ipv6: stored('ipv6'),
      names: this.#names,
      hours: this.#hours.list(),
      sinceS: Math.max(this.#sinceS, beforeS),
    };
  }

  #add(batch: EventBatch, words: Uint32Array, at: number, names: AddressNames): void {
    const kind = u32At(words, at + AT.kind);
    const details = u32At(words, at + AT.details);
    const reported = (kind >>> 8) & 0xff;
    const reason = (kind >>> 16) & 0xff;
    let verdict = reported;
    let times = 0;
    switch (kind & 0xff) {
      case EVENT_TYPE.flow_opened:
      case EVENT_TYPE.passed:
        times = 1;
        break;
      case EVENT_TYPE.denied:
        // Do not record a packet that a rule allows and that the datapath drops for another reason: the
        // policy did not deny it.
        if (reported === VERDICT_NUMBER.allow || reported === VERDICT_NUMBER.audit) return;
        verdict = VERDICT_NUMBER.deny;
        times = 1;
        break;
      case EVENT_TYPE.flow_ended:
      case EVENT_TYPE.flow_suspended:
        if (reason !== DROP_REASON.none) verdict = VERDICT_NUMBER.deny;
        break;
      case EVENT_TYPE.flow_resumed:
        break;
      default:
        return;
    }
    // Skip flows that no rule decided: flows without a verdict, and foreign flows (from interfaces without
    // policy).
    if (reported === 0 || ((details >>> 24) & EVENT_FLAG.foreign) !== 0) return;
    const family = isOfIpv6(details) ? 'ipv6' : 'ipv4';
    const seen = SEEN[family];
    const addressWords = ADDRESS_WORDS[family];
    // The least significant word of an address comes first in a record.
    for (let word = 0; word < addressWords; word++) {
      const from = at + addressWords - 1 - word;
      seen.key[word] = u32At(words, from + AT.source);
      seen.key[addressWords + word] = u32At(words, from + AT.destination);
    }
    const low16 = low16Of(kind, details, u32At(words, at + AT.ports), family);
    seen.key[2 * addressWords] = portMapKey(kind >>> 24, low16);
    seen.atS = Math.floor(batch.unixMs(wide(words, at + AT.timeLow)) / 1_000);
    seen.verdict = verdict;
    seen.passed = verdict !== VERDICT_NUMBER.deny;
    seen.nameList = this.#numberOf(names.of(addressAt(words, at + AT.destination, details)));
    seen.times = times;
    if (this.#tables[family].record(seen)) return;
    this.unrecorded++;
    this.#hours.add(seen.atS, { unrecorded: 1 });
  }

  #numberOf(list: readonly string[]): number {
    if (list.length === 0) return 0;
    const known = this.#known.get(list);
    if (known !== undefined) return known;
    const key = list.join(' ');
    let number = this.#numbers.get(key);
    if (number === undefined) {
      if (this.#names.length >= NAME_LISTS) return UNKNOWN_NAMES;
      number = this.#names.push(list) - 1;
      this.#numbers.set(key, number);
    }
    this.#known.set(list, number);
    return number;
  }

  /** Removes the lists of names that no row has. */
  #renumber(): void {
    const before = this.#names;
    const next = new Map([
      [0, 0],
      [UNKNOWN_NAMES, UNKNOWN_NAMES],
    ]);
    this.#names = [[], []];
    const numberOf = (nameList: number): number => {
      let number = next.get(nameList);
      if (number === undefined) {
        number = this.#names.push(before[nameList] ?? []) - 1;
        next.set(nameList, number);
      }
      return number;
    };
    for (const family of FAMILIES) this.#tables[family].renumber(numberOf);
    this.#numbers = new Map(this.#names.map((list, number) => [list.join(' '), number] as const).slice(2));
    this.#known = new WeakMap();
  }
}

/** Returns the destination port of a record, or ICMP type << 8 | code; 0 if the protocol has neither. */
function low16Of(kind: number, details: number, ports: number, family: Family): number {
  const protocol = kind >>> 24;
  if (HAS_PORTS.has(protocol)) return ports >>> 16;
  if (protocol !== ICMP[family]) return 0;
  // The record of an ICMP flow has no ICMP type. Only an echo request opens an ICMP flow.
  const type = kind & 0xff;
  return type === EVENT_TYPE.denied || type === EVENT_TYPE.passed
    ? ((details & 0xff) << 8) | ((details >>> 8) & 0xff)
    : ECHO_REQUEST[family];
}

const sighting = (family: Family): Sighting => ({
  key: new Uint32Array(2 * ADDRESS_WORDS[family] + 1),
  ...{ atS: 0, verdict: 0, passed: false, nameList: 0, times: 0 },
});

/** `FlowHistory.add` passes each observation in these objects, so that an event makes no garbage. */
const SEEN: Readonly<Record<Family, Sighting>> = { ipv4: sighting('ipv4'), ipv6: sighting('ipv6') };
