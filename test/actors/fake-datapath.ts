import type {
  Adoption,
  Attachment,
  Datapath,
  DatapathChange,
  DatapathStats,
  EventsWanted,
  Missing,
  Review,
} from '#contracts/datapath/datapath.js';
import { proofBy } from '#dataplane/thread/proof.js';

/**
 * A fake `Datapath` for tests. It lists the calls in `log`; a test sets the other members to change the
 * behaviour of the fake.
 */
export type FakeDatapath = Datapath & {
  readonly log: string[];
  /**
   * The generation of the program that the last call of `flip` put in force. Null: `flip` was not called yet.
   */
  readonly inForce: number | null;
  /**
   * The generation and hash of the program that an earlier process left in force, as `open` reports it. Null:
   * no program.
   */
  left: Adoption['inForce'];
  missing: readonly Missing[];
  interfaces: string[];
  /** Attached interfaces whose name matches no configured name: present name → former name. */
  renamedFrom: Readonly<Record<string, string>>;
  reviewed: Review;
  /**
   * Functions that a test sets. The fake calls the function of an operation after it has logged the
   * operation. The operation fails if the function throws, and waits for a promise that the function returns.
   */
  readonly on: { open?: Hook; attach?: Hook; police?: Hook; stage?: Hook; prove?: Hook; flip?: Hook; unstage?: Hook };
  tell(change: DatapathChange): void;
  /** The argument of the last call of `setEventsWanted`. Null: the function was not called yet. */
  readonly eventsWanted: EventsWanted | null;
};
type Hook = (() => Promise<void> | void) | undefined;

/** The time that every flip of the fake returns: Unix time in milliseconds. */
export const FLIPPED_AT = Date.UTC(2026, 0, 2);

export function fakeDatapath(): FakeDatapath {
  const listeners = new Set<(change: DatapathChange) => void>();
  let staged: number | null = null;
  let inForce: number | null = null;
  let epoch = 0;
  let eventsWanted: EventsWanted | null = null;
  const attachments = (): Attachment[] =>
    fake.interfaces.map((name, index) => ({
      interface: name,
      ifindex: index + 1,
      by: 'tcx',
      renamedFrom: fake.renamedFrom[name] ?? null,
    }));
  const fake: FakeDatapath = {
    log: [],
    get inForce() {
      return inForce;
    },
    get eventsWanted() {
      return eventsWanted;
    },
    left: null,
    missing: [],
    interfaces: ['lan0', 'wan0'],
    renamedFrom: {},
    reviewed: { faults: [], warnings: [] },
    on: {},
    tell: (change) => {
      for (const listener of listeners) listener(change);
    },
    probe: async () => fake.missing,
    open: async () => {
      fake.log.push('open');
      await fake.on.open?.();
      return { adopted: fake.left !== null, base: null, inForce: fake.left };
    },
    attach: async () => {
      fake.log.push('attach');
      await fake.on.attach?.();
      return attachments();
    },
    police: async (interfaces, renamed) => {
      fake.log.push(`police ${interfaces.join()}${renamed === 'keep' ? '' : ` and ${renamed}`}`);
      await fake.on.police?.();
      return attachments();
    },
    review: async () => fake.reviewed,
    stage: async (program, generation) => {
      fake.log.push(`stage ${generation}`);
      await fake.on.stage?.();
      staged = generation;
      return { lines: program.ranks, capacityLines: 1_000 };
    },
    prove: async (samples) => {
      fake.log.push(`prove ${staged}`);
      await fake.on.prove?.();
      return proofBy(samples);
    },
    flip: async () => {
      fake.log.push(`flip ${staged}`);
      await fake.on.flip?.();
      inForce = staged;
      epoch++;
      return { epoch, sinceMs: FLIPPED_AT, uncompiled: 0 };
    },
    confirm: async (generation) => {
      fake.log.push(`confirm ${generation}`);
    },
    unstage: async () => {
      fake.log.push('unstage');
      await fake.on.unstage?.();
      staged = null;
    },
    grant: async () => ({ refused: 0 }),
    changeMembers: async () => ({ members: 0, refused: 0, uncompiled: 0, flows: 0 }),
    replaceMembers: async () => ({ members: 0, refused: 0, uncompiled: 0, flows: 0 }),
    revoke: async () => {},
    learned: async () => [],
    arrival: async () => ({ policed: fake.interfaces, by: 'unknown' }),
    destinationTranslation: async () => null,
    stats: async (): Promise<DatapathStats> => {
      throw new Error('no counters here');
    },
    hits: async () => null,
    groupTraffic: async () => null,
    flows: async () => ({ matched: 0, items: [], next: null }),
    cutFlows: async () => 0,
    watch: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    onEventSource: () => {},
    setEventsWanted: async (wanted) => {
      eventsWanted = wanted;
    },
    spliceOffload: async () => {
      const nothing = { fd: -1, id: 0 };
      return { program: nothing, spliceMap: nothing, offloaderMap: nothing, mark: 0, idleMs: 0, endedMs: 0 };
    },
    grantPort: async () => new MessageChannel().port1,
    close: async () => void fake.log.push('close'),
  };
  return fake;
}
