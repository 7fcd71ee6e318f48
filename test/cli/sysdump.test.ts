import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gunzipSync, gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { textFile } from '#observe/sysdump/collector.js';
import { createSysdumps } from '#observe/sysdump/sysdump.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { run } from './cli-run.js';

const FILE_NAME = 'weir-sysdump-node-a-20260131T120000Z.tar.gz';

async function archive(): Promise<Buffer> {
  const now = () => new Date('2026-01-31T12:00:00.000Z');
  const dump = createSysdumps({ node: 'node-a', version: '1.2.3', now }, () => [
    textFile('a.txt', () => 'first'),
    textFile('b.txt', () => {
      throw new Error('read it: ENOENT');
    }),
    textFile('c.txt', () => 'last'),
  ]).begin();
  if (typeof dump === 'string') throw new Error(dump);
  return buffer(dump.archive);
}

/**
 * Starts a fake node that sends `bytes` as a sysdump archive. If `breaksOff` is true, the node then cuts the
 * connection.
 */
async function nodeThatSends(bytes: Buffer, { breaksOff = false, fileName = FILE_NAME } = {}): Promise<string> {
  const server = createServer((request, response) => {
    response.setHeader('content-disposition', `attachment; filename="${fileName}"`);
    response.statusCode = request.method === 'POST' ? 200 : 405;
    if (breaksOff) response.write(bytes, () => response.destroy());
    else response.end(bytes);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function fetched(bytes: Buffer, options = {}): Promise<{ code: number; err: string; file: string }> {
  const file = join(temporaryFolder(), 'dump.tar.gz');
  const url = await nodeThatSends(bytes, options);
  const { code, err } = await run(['sysdump', '--server', url, '--output', file], { WEIR_TOKEN: 't' });
  return { code, err: err.replaceAll(file, 'FILE'), file };
}

describe('weir sysdump', () => {
  it('`weir sysdump` stores the received archive unchanged, and lists the files in the archive and the files that could not be collected', async () => {
    const bytes = await archive();
    const { code, err, file } = await fetched(bytes);
    expect([code, readFileSync(file).equals(bytes)]).toEqual([0, true]);
    expect(err).toBe(`       5 B  node-a/a.txt
       4 B  node-a/c.txt
${/.*manifest[.]json\n/.exec(err)?.[0] ?? ''}node-a/b.txt: could not be collected: read it: ENOENT
FILE is complete: 2 files, ${bytes.length} B
`);
  });

  it.each([
    [
      'ends with a broken connection',
      (bytes: Buffer) => bytes.subarray(0, 100),
      { breaksOff: true },
      /^weir: the support dump FILE is incomplete: terminated$/,
    ],
    [
      'is truncated',
      (bytes: Buffer) => bytes.subarray(0, -20),
      {},
      /^weir: the support dump FILE is incomplete: unexpected end of file$/,
    ],
    [
      'is not a gzip archive',
      () => Buffer.from('<html>'),
      {},
      /^weir: the support dump FILE is incomplete: incorrect header check$/,
    ],
    ['is empty', () => Buffer.alloc(0), {}, /^weir: the support dump FILE is incomplete: /],
    [
      'is altered',
      (bytes: Buffer) =>
        gzipSync(Buffer.from(gunzipSync(bytes).toString('latin1').replace('first', 'worst'), 'latin1')),
      {},
      /^weir: the support dump FILE is incomplete: node-a\/a[.]txt differs from its entry in the manifest$/,
    ],
    [
      'has no manifest',
      (bytes: Buffer) => {
        const tar = gunzipSync(bytes);
        return gzipSync(Buffer.concat([tar.subarray(0, tar.lastIndexOf('weir-sysdump-')), Buffer.alloc(1_024)]));
      },
      {},
      /^weir: the support dump FILE is incomplete: the archive ends before its manifest$/,
    ],
  ])(
    '`weir sysdump` exits with 1 if the downloaded archive is incomplete or damaged: it %s',
    async (_, change, options, said) => {
      const { code, err } = await fetched(change(await archive()), options);
      expect(code).toBe(1);
      expect(err.trimEnd().split('\n').at(-1)).toMatch(said);
    },
  );

  it('`weir sysdump` does not overwrite an existing file', async () => {
    const file = join(temporaryFolder(), 'mine');
    writeFileSync(file, 'precious');
    const url = await nodeThatSends(await archive());
    const { code, err } = await run(['sysdump', '--server', url, '--output', file], { WEIR_TOKEN: 't' });
    expect([code, err, readFileSync(file, 'utf8')]).toEqual([
      1,
      `weir: ${file} cannot be written: the file exists already: remove it, or name another file with --output\n`,
      'precious',
    ]);
  });

  it('`weir sysdump` uses the file name from the response header, but ignores a folder in that header', async () => {
    const folder = temporaryFolder();
    const before = process.cwd();
    onTestFinished(() => process.chdir(before));
    process.chdir(folder);
    const bytes = await archive();
    const token = { WEIR_TOKEN: 't' };
    for (const fileName of [FILE_NAME, '../../etc/passwd'])
      await run(['sysdump', '--server', await nodeThatSends(bytes, { fileName })], token);
    for (const name of [FILE_NAME, 'weir-sysdump.tar.gz'])
      expect([name, readFileSync(join(folder, name)).length]).toEqual([name, bytes.length]);
  });
});
