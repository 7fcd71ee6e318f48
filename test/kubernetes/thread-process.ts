import { readFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import type { StoredObject } from '#contracts/kubernetes/kubernetes-source.js';
import { createKubernetesSource } from '#kubernetes/thread/kubernetes-thread.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { selectorOf } from '#policy/model/sources/selector.js';

/**
 * Measures the Kubernetes thread in a process of its own. Arguments: URL of the server, file of its CA,
 * token. Prints `ListFigures` as JSON after the first list is in the store. After each line of standard
 * input, prints `ChangeFigures` as JSON.
 */
export type ListFigures = {
  readonly members: number;
  /** The time until the listener has the members, and until the store has all objects. */
  readonly membersMs: number;
  readonly storedMs: number;
  /** The increase of the resident memory in MiB: its peak until the store has all objects, and 3 s later. */
  readonly peakMiB: number;
  readonly restMiB: number;
  /** The longest time for which the main thread was blocked, and the total time for which it was busy. */
  readonly longestBlockMs: number;
  readonly busyMs: number;
};
export type ChangeFigures = {
  /** The changed addresses since the last line of input, with the times in milliseconds since 1970. */
  readonly changes: readonly (readonly [address: number, at: number])[];
  /** The processor time of the process since the last line of input, as a part of one processor. */
  readonly cpu: number;
};

const APPS = 100;
const [url = '', caFile = '', token = ''] = process.argv.slice(2);

function memoryMiB(field: 'VmHWM' | 'VmRSS'): number {
  const found = new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync('/proc/self/status', 'utf8'));
  return Number(found?.[1]) / 1_024;
}

const print = (figures: ListFigures | ChangeFigures): boolean => process.stdout.write(`${JSON.stringify(figures)}\n`);

const access = { by: 'token', url, caPem: readFileSync(caFile, 'utf8'), token } as const;
const selectors = Array.from({ length: APPS }, (_, app) =>
  selectorOf({ integration: 'prod', pod_selector: { match_labels: { app: `app-${app}` } } }),
);
const source = createKubernetesSource({ podNetworks: undefined, node: null });
source.setIntegrations([{ name: 'prod', access }]);
source.setSelectors(selectors);
const record = new MemberRecord();
const store = new Map<string, string>();
let changes: [address: number, at: number][] = [];
let membersMs = 0;

await pause(500);
const before = memoryMiB('VmRSS');
const delays = monitorEventLoopDelay({ resolution: 1 });
delays.enable();
const began = performance.now();
const busy = performance.eventLoopUtilization();
const isStored = new Promise<void>((resolve, reject) => {
  const keep = ({ key, value }: StoredObject): void => {
    if (value === null) store.delete(key);
    else store.set(key, value);
    if (key === 'prod/complete' && value !== null) resolve();
  };
  source
    .open(async () => [], {
      members: async ({ replaces, changes: given, stored }) => {
        const at = Date.now();
        if (replaces !== null) {
          record.replace(replaces);
          membersMs = performance.now() - began;
        }
        for (const change of given) {
          record.change(change);
          for (const address of change.addresses) changes.push([Number(address), at]);
        }
        stored.forEach(keep);
      },
      reflector: () => {},
      failed: (reason) => reject(new Error(reason)),
    })
    .catch(reject);
});
await isStored;
const storedMs = performance.now() - began;
const peakMiB = memoryMiB('VmHWM') - before;
const { active: busyMs } = performance.eventLoopUtilization(busy);
const longestBlockMs = delays.max / 1e6;
await pause(3_000);
const members = record.list().addresses.length;
print({ members, membersMs, storedMs, peakMiB, restMiB: memoryMiB('VmRSS') - before, longestBlockMs, busyMs });
let cpu = process.cpuUsage();
let since = performance.now();
changes = [];
for await (const _ of createInterface({ input: process.stdin })) {
  const { user, system } = process.cpuUsage(cpu);
  print({ changes, cpu: (user + system) / 1e3 / (performance.now() - since) });
  changes = [];
  cpu = process.cpuUsage();
  since = performance.now();
}
await source.close();
