import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { type Collector, jsonFile, linesFile, textFile } from '#observe/sysdump/collector.js';
import { createSysdumps, type Sysdumps } from '#observe/sysdump/sysdump.js';
import { unpacked } from './unpacked.js';

const AT = new Date('2026-01-31T12:00:00.000Z');
const FOLDER = 'weir-sysdump-node_a-20260131T120000Z';

const sysdumps = (collectors: () => readonly Collector[], timeoutMs?: number): Sysdumps =>
  createSysdumps(
    { node: 'node/a', version: '1.2.3', now: () => AT, ...(timeoutMs === undefined ? {} : { timeoutMs }) },
    collectors,
  );

function begun(dumps: Sysdumps) {
  const dump = dumps.begin();
  if (typeof dump === 'string') throw new Error(`no dump began: ${dump}`);
  return dump;
}

async function dumpOf(collectors: readonly Collector[]) {
  const { fileName, archive } = begun(sysdumps(() => collectors));
  const files = await unpacked(archive);
  const manifest = JSON.parse(files.get(`${FOLDER}/manifest.json`)?.text ?? 'null') as {
    nodes: { entries: { name: string; outcome: string; error: string | null; size: number; ms: number }[] }[];
  };
  const said = manifest.nodes[0]?.entries.map(({ name, outcome, error, size }) => [name, outcome, error, size]);
  return { fileName, files, manifest, said };
}

const forever = (name: string, before: string): Collector => ({
  name,
  timeoutMs: 20,
  async *collect() {
    yield before;
    await new Promise(() => {});
  },
});

describe('a support dump', () => {
  it('a support dump contains the files of all collectors in one folder per node, and a manifest as the last file', async () => {
    const { fileName, files, manifest } = await dumpOf([
      jsonFile('stats.json', () => ({ packets: 12n })),
      linesFile('dataplane/flows.jsonl', async function* () {
        yield [{ id: 1 }, { id: 2 }];
        yield [{ id: 3 }];
      }),
      textFile('metrics.txt', async () => 'up 1\n'),
    ]);
    const texts = {
      'stats.json': '{\n  "packets": 12\n}\n',
      'dataplane/flows.jsonl': '{"id":1}\n{"id":2}\n{"id":3}\n',
      'metrics.txt': 'up 1\n',
    };
    expect(fileName).toBe(`${FOLDER}.tar.gz`);
    expect([...files.keys()]).toEqual([
      ...Object.keys(texts).map((name) => `${FOLDER}/node_a/${name}`),
      `${FOLDER}/manifest.json`,
    ]);
    expect([...files.values()].map(({ mode, mtime }) => [mode, mtime])).toEqual([...files].map(() => [0o600, AT]));
    expect(Object.keys(texts).map((name) => files.get(`${FOLDER}/node_a/${name}`)?.text)).toEqual(Object.values(texts));
    expect(manifest).toEqual({
      format: 1,
      version: '1.2.3',
      created_at: AT.toISOString(),
      nodes: [
        {
          node: 'node/a',
          folder: 'node_a',
          error: null,
          entries: Object.entries(texts).map(([name, text]) => ({
            name,
            outcome: 'complete',
            error: null,
            size: text.length,
            sha256: createHash('sha256').update(text).digest('hex'),
            ms: expect.any(Number) as number,
          })),
        },
      ],
    });
  });

  it('a support dump continues after a collector that hangs, fails or never ends, and marks the incomplete file in the manifest', async () => {
    const { files, said } = await dumpOf([
      forever('hangs.txt', 'half '),
      {
        name: 'hangs-at-once.txt',
        timeoutMs: 20,
        collect: () => ({ [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) }),
      },
      textFile('throws.txt', () => {
        throw new Error('read it: ENOENT');
      }),
      {
        name: 'endless.txt',
        maxBytes: 10,
        async *collect() {
          for (;;) yield 'abcd';
        },
      },
      textFile('empty.txt', () => ''),
      textFile('fine.txt', () => 'fine'),
    ]);
    expect(said).toEqual([
      ['hangs.txt', 'timed_out', null, 5],
      ['hangs-at-once.txt', 'timed_out', null, 0],
      ['throws.txt', 'failed', 'read it: ENOENT', 0],
      ['endless.txt', 'cut', null, 10],
      ['empty.txt', 'complete', null, 0],
      ['fine.txt', 'complete', null, 4],
    ]);
    expect([...files].map(([name, { text }]) => [name.split('/').at(-1), text]).slice(0, -1)).toEqual([
      ['hangs.txt', 'half '],
      ['endless.txt', 'abcdabcdab'],
      ['fine.txt', 'fine'],
    ]);
  });

  it('a support dump contains a placeholder in place of each credential in the files of the collectors', async () => {
    const { files, said } = await dumpOf([textFile('log.jsonl', () => 'authorization: Bearer abcdefgh12345678')]);
    expect(files.get(`${FOLDER}/node_a/log.jsonl`)?.text).toBe('authorization: Bearer [credentials]');
    expect(said).toEqual([['log.jsonl', 'complete', null, 35]]);
  });

  it('a support dump is refused while the archive of another dump is not yet read to the end', async () => {
    const dumps = sysdumps(() => [textFile('a.txt', () => 'a')]);
    const { archive } = begun(dumps);
    expect(dumps.begin()).toBe('running');
    await unpacked(archive);
    if (!archive.closed) await once(archive, 'close');
    await unpacked(begun(dumps).archive);
  });

  it('a support dump ends if the client that reads the archive disconnects, and aborts the current collector', async () => {
    let aborted: Promise<unknown> | undefined;
    let later = 0;
    const dumps = sysdumps(() => [
      {
        name: 'slow.txt',
        async *collect(signal) {
          yield 'begun';
          aborted = once(signal, 'abort');
          await aborted;
        },
      },
      textFile('later.txt', () => `${++later}`),
    ]);
    const { archive } = begun(dumps);
    while (aborted === undefined) await setImmediate();
    archive.destroy();
    await aborted;
    await setImmediate();
    expect([typeof dumps.begin(), later]).toEqual(['object', 0]);
    dumps.close();
  });

  it('a support dump ends without an error if the client disconnects in the middle of a file', async () => {
    const files = ['a.txt', 'b.txt', 'c.txt'];
    const dumps = sysdumps(() => files.map((name) => textFile(name, () => randomBytes(1 << 20).toString('hex'))));
    const { archive } = begun(dumps);
    await once(archive, 'readable');
    archive.destroy();
    await once(archive, 'close');
    // An unhandled error event ends the process only some turns of the event loop later. Without these turns
    // the test passes even if an error is unhandled.
    for (let turn = 0; turn < 10; turn++) await setImmediate();
    expect(typeof dumps.begin()).toBe('object');
    dumps.close();
  });

  it('a support dump ends with an error at the time limit even if no client reads the archive', async () => {
    const dumps = sysdumps(() => [textFile('large.txt', () => Buffer.alloc(4 << 20, 'x'))], 30);
    const { archive } = begun(dumps);
    const [failure] = (await once(archive, 'error')) as [Error];
    expect(failure.message).toBe('collect a support dump: it took too long');
  });

  it('a support dump ends with an error if the node shuts down, and no further dump starts', async () => {
    const dumps = sysdumps(() => [forever('hangs.txt', '')]);
    const { archive } = begun(dumps);
    const failed = once(archive, 'error');
    dumps.close();
    const [failure] = (await failed) as [Error];
    expect([failure.message, dumps.begin()]).toEqual(['collect a support dump: the node is shutting down', 'closed']);
  });
});
