import { afterEach, expect, test } from 'vitest';
import { createPolicyThread, PolicyThreadFailed } from '#policies/thread/policy-thread.js';
import type { PreparePolicy } from '#policies/thread/policy-work.js';
import { config } from '../../actors/running-system.js';

const surroundings = { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false } as const;
const thread = createPolicyThread();
afterEach(() => thread.close());

const work = (policy: unknown): PreparePolicy => ({
  kind: 'prepare',
  text: { body: new TextEncoder().encode(JSON.stringify(policy)), form: 'singleton', recordMode: 'enforce' },
  surroundings,
  integrations: [],
  compile: true,
  key: 'new',
});
const large = () =>
  work({
    source_groups: [
      {
        id: 'lan',
        mode: 'enforce',
        sources: { cidrs: ['10.0.0.0/8'] },
        rules: Array.from({ length: 20_000 }, (_, index) => ({
          id: `r${index}`,
          action: 'allow',
          match: { dst_ips: [`192.${index >> 16}.${(index >> 8) & 255}.${index & 255}`], proto: 'tcp' },
        })),
      },
    ],
  });

test('`PolicyThread.perform` reads and compiles a policy in a worker thread, and returns the problems of an invalid policy', async () => {
  const prepared = await thread.perform(work(config('lan', 'enforce')));
  expect(prepared).toMatchObject({
    kind: 'prepared',
    mode: 'enforce',
    name: null,
    warnings: [],
    needs: { dataplane: true, dns: false, servicePlane: false },
    integrations: [],
    program: { ranks: 2 },
  });
  expect(await thread.perform(work(config('')))).toMatchObject({ kind: 'unreadable', code: 'invalid_policy' });
});

test('`PolicyThread.perform` reads a policy with IPv6, and compiles and samples both families, only if the node enforces IPv6', async () => {
  const sources = (cidrs: readonly string[]) =>
    work({ source_groups: [{ id: 'a', mode: 'enforce', sources: { cidrs } }] });
  const prepare = async (cidrs: readonly string[], ipv6: boolean) => {
    const read = await thread.perform({ ...sources(cidrs), surroundings: { ...surroundings, ipv6 } });
    if (read.kind !== 'prepared') return read.kind;
    return [read.program?.ipv6 != null, (await read.samples)?.map(({ family }) => family)];
  };
  expect(await prepare(['10.0.0.0/8', '2001:db8::/32'], true)).toEqual([true, ['ipv4', 'ipv6']]);
  expect(await prepare(['10.0.0.0/8'], true)).toEqual([true, ['ipv4', 'ipv6']]);
  expect(await prepare(['10.0.0.0/8', '2001:db8::/32'], false)).toBe('unreadable');
  expect(await prepare(['10.0.0.0/8'], false)).toEqual([false, ['ipv4']]);
});

test('`PolicyThread.perform` compiles a policy of its cache again without its text', async () => {
  const prepared = await thread.perform(work(config('lan', 'enforce')));
  const again = await thread.perform({ kind: 'prepare_stored', key: 'new', surroundings });
  if (prepared.kind !== 'prepared' || again.kind !== 'prepared_stored') throw new Error(`${again.kind}`);
  expect(again.program).toEqual(prepared.program);
  expect(await again.samples).toEqual(await prepared.samples);
  expect(await thread.perform({ kind: 'prepare_stored', key: 'old', surroundings })).toEqual({ kind: 'unknown' });
});

test('`PolicyThread.perform` with `transfer: true` moves the buffer of a large body to the thread instead of copying the bytes', async () => {
  const asked = large();
  await thread.perform(asked, { transfer: true });
  expect(asked.text.body.byteLength).toBe(0);
});

test('an abort of `PolicyThread.perform` ends the worker thread, and the next `perform` starts a new thread', async () => {
  const abort = new AbortController();
  const reported: (string | null)[] = [];
  const unwatch = thread.watch((failure) => reported.push(failure));
  const given = thread.perform(large(), { signal: abort.signal });
  abort.abort();
  await expect(given).rejects.toBeInstanceOf(PolicyThreadFailed);
  expect((await thread.perform(work(config('lan', 'enforce')))).kind).toBe('prepared');
  expect(reported).toEqual([]);
  unwatch();
});

test('a policy thread that runs out of memory fails only the current task, and reports the failure until a new thread runs', async () => {
  const small = createPolicyThread({ maxHeapMiB: 16 });
  const reported: (string | null)[] = [];
  small.watch((failure) => reported.push(failure));
  await expect(small.perform(large())).rejects.toBeInstanceOf(PolicyThreadFailed);
  expect(reported).toEqual([expect.stringContaining('the policy thread died')]);
  expect((await small.perform(work(config('lan', 'enforce')))).kind).toBe('prepared');
  expect(reported.slice(1)).toEqual([null]);
  await small.close();
});
