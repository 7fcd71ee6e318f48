import { filter, firstValueFrom, map, merge, timer } from 'rxjs';
import { createSystem } from '#actors/system.js';
import type { System, SystemPorts } from '#actors/system-contract.js';
import type { PolicyOutcome, PolicyWrite, PolicyWritten } from '#contracts/policy/policy-write.js';
import { createPolicyTaskRunner } from '#policies/thread/policy-task-runner.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import type { Store } from '#store/store.js';
import { WRITE } from '#test/statecharts/sample.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { type FakeDatapath, fakeDatapath } from './fake-datapath.js';

const NOW = '2026-01-01T00:00:00.000Z';

/** A fake policy thread: runs the tasks of the policy thread in the calling thread. */
export function threadHere(): PolicyThread {
  const perform = createPolicyTaskRunner();
  return {
    perform: async (work) => perform(work),
    begin: async () => {},
    watch: () => () => {},
    close: async () => {},
  };
}

export type Running = {
  readonly system: System;
  readonly store: Store;
  readonly datapath: FakeDatapath;
  /** Resolves when the readiness check with the name `check` has the state `state`. */
  readonly until: (check: string, state: string) => Promise<void>;
  readonly stateOf: (check: string) => string;
};

const running: System[] = [];

export async function startSystem(
  options: Partial<SystemPorts> & { store?: Store; datapath?: FakeDatapath } = {},
): Promise<Running> {
  const store = options.store ?? (await openMemoryStore());
  const datapath = options.datapath ?? fakeDatapath();
  const system = createSystem({
    dataplane: { datapath, interfaces: ['lan0', 'wan*'] },
    fallback: 'deny',
    activationTimeoutMs: 1_000,
    dns: null,
    servicePlane: null,
    now: () => new Date(NOW),
    createThread: threadHere,
    ...options,
    store,
  });
  running.push(system);
  const stateOf = (name: string): string =>
    system.readiness().checks.find((check) => check.name === name)?.state ?? 'no such check';
  const until = async (check: string, state: string): Promise<void> => {
    const looks = merge(system.bus.messages, timer(0, 5)).pipe(
      map(() => stateOf(check)),
      filter((seen) => seen === state),
    );
    await firstValueFrom(looks);
  };
  return { system, store, datapath, until, stateOf };
}

export async function stopSystems(): Promise<void> {
  await Promise.all(running.splice(0).map((system) => system.shutdown()));
}

/** A policy with one source group, whose id is `id`, and one rule. */
export function config(id: string, mode?: 'audit' | 'enforce'): unknown {
  return {
    source_groups: [
      {
        id,
        ...(mode === undefined ? {} : { mode }),
        sources: { cidrs: ['10.0.0.0/8'] },
        rules: [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [443] } }],
      },
    ],
  };
}
export const envelope = (id: string, more: Record<string, unknown> = {}): unknown => ({
  mode: 'enforce',
  policy: config(id),
  ...more,
});

export function write(body: unknown, more: Partial<PolicyWrite> = {}): PolicyWrite {
  return { ...WRITE, body: new TextEncoder().encode(JSON.stringify(body)), ...more };
}
export const singleton = (id: string, more: Partial<PolicyWrite> = {}): PolicyWrite =>
  write(config(id, 'enforce'), { target: { by: 'active' }, form: 'singleton', ...more });
export const removal = (id: string, more: Partial<PolicyWrite> = {}): PolicyWrite =>
  write(null, { operation: 'delete', target: { by: 'id', id }, body: new Uint8Array(), ...more });

export const textOf = (body: Uint8Array): unknown => JSON.parse(new TextDecoder().decode(body));

/** An integration, and a policy whose only group selects pods of it. */
export const INTEGRATION = {
  name: 'prod',
  kind: 'kubernetes',
  api_server_url: 'https://kube.test',
  ca_cert_pem: '',
  service_account_token: 't',
} as const;
const SOURCES = { kubernetes: [{ integration: 'prod', pod_selector: { match_labels: { app: 'web' } } }] };
export const SELECTING = { mode: 'enforce', policy: { source_groups: [{ id: 'pods', sources: SOURCES }] } };

/** Returns the outcome of a policy write that succeeded. Throws for any other outcome. */
export function written(outcome: PolicyOutcome): PolicyWritten {
  if (outcome.kind !== 'written') throw new Error(JSON.stringify(outcome));
  return outcome;
}

/** Returns the code of a refusal, or the codes of the warnings. */
export const codesOf = (outcome: PolicyOutcome): string[] =>
  outcome.kind === 'refused' ? [outcome.code] : outcome.warnings.map(({ code }) => code);
