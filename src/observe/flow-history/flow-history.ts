import { u32At } from '#arrays/read.js';
import { type FlowColumns, type SeenFlows, UNKNOWN_NAMES } from '#contracts/analysis/seen-flows.js';
import { DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import type { EventBatch } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_TYPE } from '#dataplane/events/event.js';
import type { AddressNames } from '#observe/names/address-names.js';
import { AT, startOf, wide } from '#observe/wiretap/messages/event-record.js';
import { FlowTable, type Sighting } from './flow-table.js';
import { type RecordedHour, RecordedHours } from './recorded-hours.js';

export type FlowHistoryOptions = {
  /** For how many milliseconds a flow is kept after it was last seen. */
  readonly retentionMs: number;
  readonly maxFlows: number;
};

/** The content of a history, in the form in which it is stored. */
export type FlowHistoryContent = {
  readonly count: number;
  readonly columns: FlowColumns;
  readonly names: readonly (readonly string[])[];
  readonly hours: readonly RecordedHour[];
  readonly sinceS: number;
  readonly removedS: { readonly passed: number; readonly denied: number };
};

/** The maximum number of different lists of names, which limits memory. */
const NAME_LISTS = 2 ** 16 - 1;
/**
 * The longest time between two calls of `tick` that counts as recorded. A longer one means that the machine
 * slept.
 */
const LONGEST_TICK_S = 60;
const ECHO_REQUEST = 8 * 256;
const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);

/** Records which flows were seen, from the events of the datapath about IPv4. */
export class FlowHistory {
  readonly #options: FlowHistoryOptions;
  readonly #table: FlowTable;
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
    this.#table = new FlowTable(options.maxFlows);
    this.#hours = new RecordedHours(stored?.hours);
    this.#sinceS = Math.floor(stored?.sinceS ?? nowMs / 1_000);
    this.#names = stored === null ? [[], []] : [...stored.names];
    if (stored !== null) {
      this.#table.removedS = stored.removedS;
      this.#table.restore(stored.columns, stored.count);
    }
    this.#renumber();
  }

  get count(): number {
    return this.#table.count;
  }

  /** The number of rows that stand for several flows. */
  get folded(): number {
    return this.#table.folded;
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
    const { sinceS, count, names } = this.content(nowMs);
    const { removedS, folded } = this.#table;
    const untilS = Math.floor(nowMs / 1_000);
    const afterRemoved = (removed: number): number => Math.max(sinceS, removed === 0 ? 0 : removed + 1);
    const from = afterRemoved(removedS.passed);
    const { recordedS, lost, unrecorded } = this.#hours.since(from);
    return {
      ...this.#table.shared(),
      count,
      names,
      coverage: {
        sinceS: from,
        deniedSinceS: afterRemoved(removedS.denied),
        untilS,
        recordedS: Math.min(recordedS, untilS - from),
        isRecording: this.#isRecording,
        folded,
        lost,
        unrecorded,
      },
    };
  }

  /** Returns the content to store. Its columns are valid until the next event. */
  content(nowMs: number): FlowHistoryContent {
    this.tick(nowMs);
    const beforeS = Math.floor((nowMs - this.#options.retentionMs) / 1_000);
    this.#table.expire(beforeS);
    this.#hours.expire(beforeS);
    this.#renumber();
    return {
      count: this.#table.count,
      columns: this.#table.columns,
      names: this.#names,
      hours: this.#hours.list(),
      sinceS: Math.max(this.#sinceS, beforeS),
      removedS: this.#table.removedS,
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
        // A packet that a rule allows and that is dropped for another reason was not denied by the policy.
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
    // No rule was applied to a flow without a verdict, or to a foreign one.
    if (reported === 0 || ((details >>> 24) & (EVENT_FLAG.foreign | EVENT_FLAG.ipv6)) !== 0) return;
    const destination = u32At(words, at + AT.destination);
    const protocol = kind >>> 24;
    SEEN.source = u32At(words, at + AT.source);
    SEEN.destination = destination;
    SEEN.service = portMapKey(protocol, this.#low16(kind, protocol, details, u32At(words, at + AT.ports)));
    SEEN.atS = Math.floor(batch.unixMs(wide(words, at + AT.timeLow)) / 1_000);
    SEEN.verdict = verdict;
    SEEN.passed = verdict !== VERDICT_NUMBER.deny;
    SEEN.nameList = this.#numberOf(names.of(destination));
    SEEN.times = times;
    if (this.#table.record(SEEN)) return;
    this.unrecorded++;
    this.#hours.add(SEEN.atS, { unrecorded: 1 });
  }

  #low16(kind: number, protocol: number, details: number, ports: number): number {
    if (HAS_PORTS.has(protocol)) return ports >>> 16;
    if (protocol !== IPPROTO.icmp) return 0;
    // The record of an ICMP flow has no ICMP type. Only an echo request opens an ICMP flow.
    const type = kind & 0xff;
    return type === EVENT_TYPE.denied || type === EVENT_TYPE.passed
      ? ((details & 0xff) << 8) | ((details >>> 8) & 0xff)
      : ECHO_REQUEST;
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
    this.#table.renumber((nameList) => {
      let number = next.get(nameList);
      if (number === undefined) {
        number = this.#names.push(before[nameList] ?? []) - 1;
        next.set(nameList, number);
      }
      return number;
    });
    this.#numbers = new Map(this.#names.map((list, number) => [list.join(' '), number] as const).slice(2));
    this.#known = new WeakMap();
  }
}

/** `FlowHistory.add` passes each observation in this object, so that an event makes no garbage. */
const SEEN: Sighting = {
  source: 0,
  destination: 0,
  service: 0,
  atS: 0,
  verdict: 0,
  passed: false,
  nameList: 0,
  times: 0,
};
