import type { System } from '#actors/system-contract.js';
import { formatAddress } from '#addresses/ip-address.js';
import { memoryAddressAt } from '#addresses/memory-words.js';
import type { Config } from '#config/config.js';
import type { RunningConfig } from '#config/reload/running-config.js';
import type { HitReport } from '#contracts/datapath/datapath.js';
import { ADDRESS_WORDS } from '#contracts/policy/address-words.js';
import type { Refusal } from '#contracts/refusal.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { chains, hookPrograms, NETWORK_TEXTS, settings } from '#dataplane/machine/machine-network.js';
import { system as machine, ownProcess } from '#dataplane/machine/process.js';
import { dataplaneStatus } from '#dataplane/status/dataplane-status.js';
import { EVERY_FINDING, type FindingPage, type FindingQuery } from '#observe/findings/finding-filter.js';
import { shownFinding } from '#observe/findings/finding-json.js';
import type { LogRing } from '#observe/log/log-ring.js';
import type { Metrics } from '#observe/metrics/metrics.js';
import type { NodeStats } from '#observe/metrics/stats.js';
import type { StatsSeries } from '#observe/metrics/stats-series.js';
import { type Collector, jsonFile, linesFile, textFile } from '#observe/sysdump/collector.js';
import { createSysdumps, type Sysdumps } from '#observe/sysdump/sysdump.js';

export type SupportSources = {
  readonly version: string;
  readonly running: RunningConfig;
  readonly system: System;
  stats(): Promise<NodeStats>;
  readonly series: StatsSeries;
  readonly metrics: Metrics;
  readonly log: LogRing;
  findings(query: FindingQuery): Promise<FindingPage>;
};

const MAX_FLOWS = 10_000;
const MAX_FINDINGS = 10_000;
const FINDINGS_AT_ONCE = 1_000;
const MAX_GRANTS = 100_000;
const HITS_AT_ONCE = 10_000;
const LARGE = { timeoutMs: 60_000, maxBytes: 64 << 20 } as const;

/**
 * Creates the support dumps of a node (D33). A dump contains its manifest and the files listed here, and no
 * other file.
 */
export function createSupport(sources: SupportSources): Sysdumps {
  const { version, running } = sources;
  return createSysdumps({ node: running.config.node.id, version }, () => [
    jsonFile('build.json', () => ({ version, node: process.version, arch: process.arch, platform: process.platform })),
    jsonFile('configuration.json', () => running.disclosed),
    ...ofParts(sources),
    ...ofPolicies(sources.system),
    ...(running.config.dataplane === null ? [] : ofDataplane(sources.system, running.config.dataplane)),
    linesFile('dns/names.jsonl', async function* () {
      yield (await resultOf(sources.system.lookups.names())).map((name) => ({
        ...name,
        addresses: name.addresses.map(formatAddress),
      }));
    }),
    linesFile('findings.jsonl', async function* () {
      yield* findingsOf(sources);
    }),
    textFile('log.jsonl', () => sources.log.lines().join('')),
    ...ofMachine(),
  ]);
}

async function* findingsOf(sources: Pick<SupportSources, 'findings' | 'running'>): AsyncGenerator<readonly unknown[]> {
  let left = MAX_FINDINGS;
  for (let cursor: string | null | undefined; cursor !== null && left > 0; ) {
    const limit = Math.min(left, FINDINGS_AT_ONCE);
    const page = await sources.findings({ filter: EVERY_FINDING, limit, cursor: cursor ?? null });
    left -= page.items.length;
    yield page.items.map((finding) => shownFinding(finding, sources.running.config.node.id));
    cursor = page.next;
  }
}

function ofParts({ system, metrics, ...sources }: SupportSources): Collector[] {
  return [
    jsonFile('readiness.json', () => system.readiness()),
    jsonFile('statecharts.json', () => system.debug.charts()),
    linesFile('statechart-events.jsonl', async function* () {
      // Leave out the definitions of statecharts: the file `statecharts.json` of the dump contains them.
      yield system.debug.recent().map((told) => ({ ...told, definition: undefined }));
    }),
    jsonFile('stats.json', () => sources.stats()),
    jsonFile('stats-series.json', () => sources.series.view()),
    textFile('metrics.txt', () => metrics.scrape()),
  ];
}

function ofPolicies(system: System): Collector[] {
  let described: ReturnType<System['policies']['describe']> | undefined;
  return [
    jsonFile('policy/records.json', () => system.policies.list()),
    jsonFile('policy/pending.json', () => system.pendingChange.read()),
    jsonFile('policy/assertions.json', async () => {
      const list = await system.assertions.read();
      return { ...list, results: await system.assertions.results(list, 'support dump') };
    }),
    textFile('policy/active.json', async () => (await system.policies.read({ by: 'active' }))?.body ?? '', LARGE),
    jsonFile(
      'policy/warnings.json',
      async (signal) => {
        described = system.policies.describe(signal);
        return (await described)?.warnings ?? null;
      },
      LARGE,
    ),
    textFile('policy/program.txt', async () => (await described)?.listing ?? '', LARGE),
  ];
}

function ofDataplane({ traffic }: System, dataplane: NonNullable<Config['dataplane']>): Collector[] {
  const { pinPath, interfaces, markMask, reversePath, policeLocal, ipv6 } = dataplane;
  return [
    jsonFile('dataplane/status.json', () =>
      dataplaneStatus({ pinPath, configured: { interfaces, markMask, reversePath, policeLocal, ipv6 } }),
    ),
    jsonFile('dataplane/programs.json', hookPrograms),
    linesFile('dataplane/hits.jsonl', async function* () {
      for (let from: number | null = 0; from !== null; ) {
        const page: HitReport = await resultOf(
          traffic.hits({ groups: [], rules: [], unused: undefined, from, limit: HITS_AT_ONCE }),
        );
        yield page.items;
        from = page.next;
      }
    }),
    linesFile('dataplane/flows.jsonl', async function* () {
      const { items } = await resultOf(traffic.flows({ filter: anyFlow(), after: null, limit: MAX_FLOWS }));
      yield items.map((flow) => ({
        ...flow,
        key: Buffer.from(flow.key).toString('base64url'),
        source: formatAddress(flow.source),
        destination: formatAddress(flow.destination),
      }));
    }),
    linesFile('dataplane/grants.jsonl', async function* () {
      const now = process.hrtime.bigint();
      let left = MAX_GRANTS;
      for (const { pattern, family, addresses, expiresAtNs } of await resultOf(traffic.learned())) {
        if (left === 0) break;
        const shown = [...expiresAtNs.subarray(0, left).keys()];
        left -= shown.length;
        yield shown.map((at) => ({
          pattern,
          address: formatAddress(memoryAddressAt(addresses, at * ADDRESS_WORDS[family], family)),
          expires_in_ms: Number(((expiresAtNs[at] ?? now) - now) / 1_000_000n),
        }));
      }
    }),
  ];
}

function ofMachine(): Collector[] {
  return [
    jsonFile('machine/system.json', machine),
    jsonFile('machine/process.json', ownProcess),
    jsonFile('machine/settings.json', settings),
    jsonFile('machine/chains.json', chains),
    ...Object.entries(NETWORK_TEXTS).map(([name, collect]): Collector => ({ name: `machine/${name}`, collect })),
  ];
}

/**
 * Returns the result of a request to a part of the node. Throws an error if the part refused the request, for
 * example because it does not run. The manifest of the dump then contains this error.
 */
async function resultOf<T>(asked: Promise<T | Refusal>): Promise<T> {
  const answer = await asked;
  if (typeof answer === 'object' && answer !== null && 'kind' in answer && answer.kind === 'refused')
    throw new Error(answer.detail);
  return answer as T;
}
