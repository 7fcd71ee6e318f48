import type { Refusal } from '#bus/requests.js';
import type { Datapath, FlowFilter, FlowPage, FlowQuery, HitQuery, HitReport, Learned } from '#dataplane/datapath.js';
import { refusal } from '#statecharts/refusal.js';

/** What the datapath knows of the traffic that it judged; a `Refusal` while there is none to ask. */
export type Traffic = {
  hits(query: HitQuery): Promise<HitReport | Refusal>;
  flows(query: FlowQuery): Promise<FlowPage | Refusal>;
  cutFlows(filter: FlowFilter): Promise<{ readonly cut: number } | Refusal>;
  /** What is granted now; see `Datapath.learned`. */
  learned(): Promise<readonly Learned[] | Refusal>;
};

const ABSENT = refusal('feature_unavailable', 'the configuration has no dataplane section: nothing is judged here');
const NOT_RUNNING = refusal('dataplane_unavailable', 'the dataplane is not running at the moment; see /ready');
const NOTHING_YET = refusal('dataplane_unavailable', 'nothing was put in force since this process began; see /ready');

/** `isEngaged` says whether the datapath is open. */
export function trafficOver(datapath: Datapath | null, isEngaged: () => boolean): Traffic {
  const ask = async <T>(question: (asked: Datapath) => Promise<T>): Promise<T | Refusal> => {
    if (datapath === null) return ABSENT;
    return isEngaged() ? question(datapath) : NOT_RUNNING;
  };
  return {
    hits: (query) => ask(async (asked) => (await asked.hits(query)) ?? NOTHING_YET),
    flows: (query) => ask((asked) => asked.flows(query)),
    learned: () => ask((asked) => asked.learned()),
    cutFlows: (filter) => ask(async (asked) => ({ cut: await asked.cutFlows(filter) })),
  };
}

/** The patterns that an address is granted for now; null where the datapath cannot say. */
export async function grantedFor(
  traffic: Pick<Traffic, 'learned'>,
  address: number,
): Promise<readonly string[] | null> {
  const learned = await traffic.learned();
  if ('kind' in learned) return null;
  return learned.filter(({ addresses }) => addresses.includes(address >>> 0)).map(({ pattern }) => pattern);
}
