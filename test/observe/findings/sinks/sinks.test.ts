import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { auditDelta } from '#observe/findings/audit-event.js';
import { EVERY_FINDING } from '#observe/findings/finding-filter.js';
import type { SinkState } from '#observe/findings/sinks/delivery-queue.js';
import type { DeliveredFinding } from '#observe/findings/sinks/sink.js';
import { createSinks, type SinkOptions, sinkNames } from '#observe/findings/sinks/sinks.js';
import {
  type FindingStore,
  type FindingStoreOptions,
  openFindingStore,
} from '#observe/findings/store/finding-store.js';
import type { KvStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { seen } from '../seen.js';
import { isSigned, type Received, receiver } from './receiver.js';

const SECRET = 'planted-secret';
const BACKOFF = { firstMs: 5, longestMs: 40 };
const OPTIONS: Omit<FindingStoreOptions, 'sinks'> = { retentionMs: 1e6, maxEntries: 1_000, now: () => 500_000 };

/**
 * The first delivery position of a finding store that is created at Unix time 500,000 ms. Positions start at
 * the time in microseconds.
 */
const FIRST_POSITION = 500_000_000;

async function running(
  options: SinkOptions,
  { kv = createMemoryStore(), ...bounds }: Partial<FindingStoreOptions> & { kv?: KvStore } = {},
) {
  const ledger = await openFindingStore(kv, { ...OPTIONS, sinks: sinkNames(options), ...bounds });
  const states: SinkState[] = [];
  const sinks = createSinks(ledger.outbox, options, 'node-a', (state) => states.push(state), BACKOFF);
  onTestFinished(async () => {
    await sinks.close();
    await ledger.close();
  });
  return { ledger, sinks, states };
}
function webhook(url: string, timeoutMs = 1_000): SinkOptions {
  const secretFile = join(temporaryFolder(), 'secret');
  writeFileSync(secretFile, `${SECRET}\n`);
  return { file: null, webhook: { url, secretFile, timeoutMs } };
}
const toFile = (maxBytes = 1 << 20, keep = 2): SinkOptions & { readonly file: { readonly path: string } } => ({
  file: { path: join(temporaryFolder(), 'findings.jsonl'), maxBytes, keep },
  webhook: null,
});
const toldIn = (text: string) =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as DeliveredFinding);
const toldBy = (received: readonly Received[]) =>
  received.flatMap(({ body }) => JSON.parse(body) as DeliveredFinding[]);
const briefly = (told: readonly DeliveredFinding[]) =>
  told.map(({ src_ip, new_count, count }) => `${src_ip} +${new_count} =${count}`);
const allDelivered = async (ledger: FindingStore, name: string) =>
  expect.poll(async () => (await ledger.outbox.read(name, 1)).items.length).toBe(0);

describe('the file sink', () => {
  it('the file sink appends one JSON line for each changed finding, and sets the file mode to 0600', async () => {
    const options = toFile();
    const { path } = options.file;
    writeFileSync(path, '{"torn":');
    chmodSync(path, 0o644);
    const { ledger } = await running(options);
    await ledger.merge([seen({ count: 2 }), seen({ count: 3 }), seen({ source: '10.0.0.8' })]);
    await ledger.merge([seen({ lastMs: 2_000 })]);
    await allDelivered(ledger, 'file');
    const [torn, ...lines] = readFileSync(path, 'utf8').split('\n');
    expect(torn).toBe('{"torn":');
    const told = toldIn(lines.join('\n'));
    expect(briefly(told)).toEqual(['10.0.0.7 +5 =5', '10.0.0.8 +1 =1', '10.0.0.7 +1 =6']);
    expect(told.map(({ position }) => position - (told[0]?.position ?? 0))).toEqual([0, 1, 2]);
    expect(told[2]).toMatchObject({
      finding_type: 'l4_deny',
      last_seen: '1970-01-01T00:00:02.000Z',
      node_ids: ['node-a'],
    });
    expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  it('the file sink renames a full file, keeps the configured number of old files, and removes the oldest file', async () => {
    const options = toFile(2_000, 2);
    const { ledger } = await running(options);
    for (let round = 1; round <= 12; round++) {
      await ledger.merge([seen({ lastMs: 1_000 + round })]);
      await allDelivered(ledger, 'file');
    }
    const { path } = options.file;
    const folder = join(path, '..');
    expect(readdirSync(folder).sort()).toEqual(['findings.jsonl', 'findings.jsonl.1', 'findings.jsonl.2']);
    const files = [`${path}.2`, `${path}.1`, path].map((name) => readFileSync(name, 'utf8'));
    expect(files.every((text) => text.length <= 2_000)).toBe(true);
    const counts = toldIn(files.join('')).map(({ count }) => count);
    expect(counts).toEqual(Array.from({ length: counts.length }, (_, at) => 13 - counts.length + at));
    expect(counts.length).toBeGreaterThan(4);
  });

  it('the file sink writes a finding that is larger than the maximum file size into a separate file', async () => {
    const options = toFile(100);
    const { ledger } = await running(options);
    await ledger.merge([seen(), seen({ source: '10.0.0.8' })]);
    await allDelivered(ledger, 'file');
    expect(toldIn(readFileSync(options.file.path, 'utf8')).length).toBe(1);
    expect(toldIn(readFileSync(`${options.file.path}.1`, 'utf8')).length).toBe(1);
  });

  it('the file sink reports a failure with ENOENT while the folder of the file does not exist', async () => {
    const { ledger, states } = await running({
      file: { path: '/nonexistent/findings.jsonl', maxBytes: 100, keep: 1 },
      webhook: null,
    });
    await ledger.merge([seen()]);
    await expect.poll(() => states.map(({ failure }) => failure)).toEqual([expect.stringContaining('ENOENT')]);
  });
});

describe('the webhook sink', () => {
  it('the webhook sink posts JSON arrays of findings, with a signature made with the secret', async () => {
    const { received, url } = await receiver();
    const { ledger, sinks } = await running(webhook(url));
    await ledger.merge([seen({ count: 2 }), seen({ source: '10.0.0.8' })]);
    await allDelivered(ledger, 'webhook');
    expect(received.map(({ path, headers }) => [path, headers['content-type']])).toEqual([
      ['/in?key=planted-path', 'application/json'],
    ]);
    expect(received.every((one) => isSigned(one, SECRET) && !isSigned(one, 'other'))).toBe(true);
    expect(briefly(toldBy(received))).toEqual(['10.0.0.7 +2 =2', '10.0.0.8 +1 =1']);
    await expect
      .poll(() => sinks.states)
      .toEqual([{ name: 'webhook', delivered: 2, failed: 0, failure: null, dropped: 0, waiting: 0 }]);
  });

  it('the webhook sink repeats findings that the receiver refused, in their order and at least once, also after a restart', async () => {
    const kv = createMemoryStore();
    const { received, told, url } = await receiver();
    const { answer } = told;
    told.answer = (refusing) => void refusing.writeHead(500).end('no');
    const options = webhook(url);
    const first = await openFindingStore({ ...bound(kv), close: async () => {} }, { ...OPTIONS, sinks: ['webhook'] });
    const states: SinkState[] = [];
    const sinks = createSinks(first.outbox, options, 'node-a', (state) => states.push(state), BACKOFF);
    await first.merge([seen()]);
    await expect.poll(() => received.length).toBeGreaterThan(3);
    await first.merge([seen({ lastMs: 2_000 }), seen({ source: '10.0.0.8' })]);
    await sinks.close();
    await first.close();
    const origin = new URL(url).origin;
    expect(states).toEqual([
      {
        name: 'webhook',
        delivered: 0,
        failed: 1,
        failure: `post findings to ${origin}: HTTP status 500`,
        dropped: 0,
        waiting: expect.any(Number) as number,
      },
    ]);

    received.splice(0);
    told.answer = answer;
    const { ledger } = await running(options, { kv });
    await allDelivered(ledger, 'webhook');
    // The sink may repeat a delivery that was under way when the sink was closed. A repeated finding has the
    // position of the first delivery.
    const once = () => [...new Map(toldBy(received).map((one) => [one.position, one])).values()];
    expect(briefly(once())).toEqual(['10.0.0.7 +1 =1', '10.0.0.7 +1 =2', '10.0.0.8 +1 =1']);
    await ledger.merge([seen({ source: '10.0.0.9' })]);
    await expect.poll(() => once().length).toBe(4);
  });

  it('the webhook sink treats a redirect as a failure, and does not contact the new location', async () => {
    const other = await receiver();
    const { received, told, url } = await receiver();
    told.answer = (answer) => void answer.writeHead(307, { location: other.url }).end();
    const { ledger, states } = await running(webhook(url));
    await ledger.merge([seen()]);
    await expect.poll(() => received.length).toBeGreaterThan(1);
    expect(states[0]?.failure).toBe(`post findings to ${new URL(url).origin}: HTTP status 307`);
    expect(other.received).toEqual([]);
  });

  it('the webhook sink retries a delivery if the receiver does not respond or if the connection is refused', async () => {
    const { told, url, received, port, close } = await receiver();
    told.answer = () => {};
    const { ledger, states } = await running(webhook(url, 60));
    await ledger.merge([seen()]);
    const origin = new URL(url).origin;
    await expect.poll(() => received.length).toBeGreaterThan(1);
    await close();
    await expect.poll(() => states.at(-1)?.failure).toBe(`post findings to ${origin}: ECONNREFUSED`);
    expect(states[0]?.failure).toBe(`post findings to ${origin}: no answer within 60 ms`);
    const again = await receiver(port);
    await expect.poll(() => states.at(-1)?.failure).toBe(null);
    expect(briefly(toldBy(again.received))).toEqual(['10.0.0.7 +1 =1']);
  });

  it('the webhook sink sends a finding of type gap with the number of findings that the sink dropped while the receiver refused deliveries', async () => {
    const { received, told, url } = await receiver();
    const { answer } = told;
    told.answer = (refusing) => void refusing.writeHead(503).end();
    const { ledger } = await running(webhook(url), { outboxEntries: 300 });
    for (let round = 0; round < 10; round++) {
      await ledger.merge(
        Array.from({ length: 100 }, (_, at) => seen({ source: `10.0.${round}.${at}`, lastMs: 1_000 + round })),
      );
    }
    received.splice(0);
    told.answer = answer;
    await allDelivered(ledger, 'webhook');
    const got = toldBy(received);
    const gaps = got.filter(({ finding_type: type }) => type === 'gap');
    const kept = new Set(got.map(({ position }) => position)).size;
    expect(new Set(gaps.map(({ target }) => target))).toEqual(new Set(['sink webhook']));
    const { items } = await ledger.query({ filter: { ...EVERY_FINDING, types: ['gap'] }, limit: 10, cursor: null });
    expect(items.map(({ count }) => count)).toEqual([gaps.at(-1)?.count]);
    const changes = Math.max(...got.map(({ position }) => position)) - FIRST_POSITION + 1;
    const lost = items[0]?.count ?? 0;
    expect([changes - 300, changes - 299]).toContain(lost);
    // The sink drops queued findings while at most one delivery of 100 findings is under way. The receiver
    // may get these 100 findings although the gap counts them as dropped.
    expect(kept).toBeGreaterThanOrEqual(changes - lost);
    expect(kept).toBeLessThanOrEqual(changes - lost + 100);
  });
});

it('a new sink receives no earlier findings, and the queue of a removed sink is deleted', async () => {
  const kv = createMemoryStore();
  const keep = { ...bound(kv), close: async () => {} };
  const none = await openFindingStore(keep, { ...OPTIONS, sinks: [] });
  await none.merge([seen()]);
  const both = await openFindingStore(keep, { ...OPTIONS, sinks: ['file', 'webhook'] });
  expect((await both.outbox.read('file', 10)).items).toEqual([]);
  await both.merge([seen(), seen({ source: '10.0.0.8' })]);
  const { items, next } = await both.outbox.read('file', 10);
  expect(items.map(({ finding, newCount }) => `${finding.source} +${newCount} =${finding.count}`)).toEqual([
    '10.0.0.7 +1 =2',
    '10.0.0.8 +1 =1',
  ]);
  await both.outbox.acknowledge('file', next);
  expect((await both.outbox.read('file', 10)).items).toEqual([]);
  const entries = async () => {
    const keys = [];
    for await (const [key] of kv.iterate({ gte: 'outbox/', lt: 'outbox0' })) keys.push(key);
    return keys.length;
  };
  expect(await entries()).toBe(2);
  const one = await openFindingStore(keep, { ...OPTIONS, sinks: ['file'] });
  await one.merge([seen()]);
  await one.outbox.acknowledge('file', (await one.outbox.read('file', 10)).next);
  expect(await entries()).toBe(0);
});

it('no secret appears in a finding, in the file of a sink, in a posted body, or in the status of a sink', async () => {
  const { received, told, url } = await receiver();
  told.answer = (refusing) => void refusing.writeHead(401).end(SECRET);
  const file = toFile();
  const { ledger, states } = await running({ file: file.file, webhook: webhook(url).webhook });
  const remote = '10.0.0.9';
  const denied = { type: 'auth_denied', reason: 'invalid_token', actor: null, operation: 'getPolicy', remote } as const;
  await ledger.merge([auditDelta({ ...denied, target: '/api/v1/policies/:id' }, 1_000)]);
  await expect.poll(() => states.length).toBeGreaterThan(0);
  await allDelivered(ledger, 'file');
  const page = await ledger.query({ filter: EVERY_FINDING, limit: 10, cursor: null });
  const written = readFileSync(file.file.path, 'utf8');
  expect(toldIn(written)).toEqual([
    expect.objectContaining({ finding_type: 'auth_denied', src_ip: remote, remote, drop_reason: 'invalid_token' }),
  ]);
  const everything = [JSON.stringify([page, states]), written, ...received.map(({ body }) => body)].join();
  expect(everything).not.toMatch(/planted/);
});

function bound(kv: KvStore): KvStore {
  return { ...kv };
}
