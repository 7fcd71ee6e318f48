import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { checkBounded, readBounded, readBoundedSync, readPipeOrFile } from '#files/bounded-file.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const BOUND = 128 * 1024;
const READERS = {
  readBounded,
  readBoundedSync: async (path: string, maxBytes: number) => readBoundedSync(path, maxBytes),
  readPipeOrFile: async (path: string, maxBytes: number) => readPipeOrFile(path, maxBytes),
};
type Reader = keyof typeof READERS;
const EVERY = Object.keys(READERS) as Reader[];

const outcome = (reader: Reader, path: string): Promise<string> =>
  READERS[reader](path, BOUND).then(
    (bytes) => `${bytes.length} bytes`,
    (failure: Error) => failure.message.replaceAll(path, 'FILE'),
  );

describe.each(EVERY)('bounded file reader %s', (reader) => {
  it.each<[string, (path: string) => unknown, string]>([
    ['an empty file', (path) => writeFileSync(path, ''), '0 bytes'],
    ['a file of the maximum size', (path) => writeFileSync(path, Buffer.alloc(BOUND)), `${BOUND} bytes`],
    ['a larger file', (path) => writeFileSync(path, Buffer.alloc(BOUND + 1)), 'FILE is larger than 128 KiB'],
    ['a directory', (path) => mkdirSync(path), 'FILE is a directory, not a regular file'],
    ['a link to /dev/zero', (path) => symlinkSync('/dev/zero', path), 'FILE is a device, not a regular file'],
    ['a missing file', () => {}, 'FILE: no such file or directory'],
    ['a dangling link', (path) => symlinkSync('/no/such', path), 'FILE: no such file or directory'],
    ['a loop of links', (path) => symlinkSync(path, path), 'FILE: too many symbolic links encountered'],
  ])(
    'a bounded file reader returns the content up to the maximum size, or an error with the reason, for each kind of path: %s',
    async (_, make, expected) => {
      const path = join(temporaryFolder(), 'file');
      make(path);
      expect(await outcome(reader, path)).toBe(expected);
    },
  );

  it('a bounded file reader reads a regular file through a symbolic link', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'file'), 'text');
    symlinkSync('file', join(folder, 'link'));
    expect(await outcome(reader, join(folder, 'link'))).toBe('4 bytes');
  });

  it('a bounded file reader reads a file in /proc although the reported file size is 0', async () => {
    expect(await outcome(reader, '/proc/self/status')).toMatch(/^[1-9]\d+ bytes$/);
  });

  it('a bounded file reader refuses to read a Unix domain socket', async () => {
    const path = join(temporaryFolder(), 'socket');
    const server = createServer().listen(path);
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    expect(await outcome(reader, path)).toBe('FILE: no such device or address');
  });
});

describe('FIFO', () => {
  const fifo = (): string => {
    const path = join(temporaryFolder(), 'fifo');
    execFileSync('mkfifo', [path]);
    return path;
  };

  it.each(['readBounded', 'readBoundedSync'] as const)(
    'a FIFO is refused by the bounded file reader %s without waiting for a writer',
    async (reader) => {
      expect(await outcome(reader, fifo())).toBe('FILE is a FIFO, not a regular file');
    },
  );

  it.each([
    [BOUND, `${BOUND} bytes`],
    [BOUND + 1, 'FILE is larger than 128 KiB'],
  ])(
    'a FIFO with %i bytes is read by `readPipeOrFile` if the size is at most 128 KiB, and is refused otherwise',
    async (bytes, expected) => {
      const path = fifo();
      const writer = spawn('sh', ['-c', `exec head -c ${bytes} /dev/zero > "$0"`, path], { stdio: 'ignore' });
      const ended = once(writer, 'exit');
      expect(await outcome('readPipeOrFile', path)).toBe(expected);
      await ended;
    },
  );
});

it.each(EVERY)(
  'the reader %s refuses a file whose content exceeds the limit although its reported size is 0',
  async (reader) => {
    expect(await outcome(reader, '/proc/self/pagemap')).toBe('FILE is larger than 128 KiB');
  },
);

it.each(EVERY)('the reader %s throws a system error with error code, system call and path', async (reader) => {
  const failure: unknown = await READERS[reader]('/no/such', BOUND).catch((caught: unknown) => caught);
  expect(failure).toBeInstanceOf(Error);
  expect(failure).toMatchObject({ code: 'ENOENT', syscall: 'open', path: '/no/such' });
});

it('`checkBounded` refuses a file above the limit, a device and a missing file, without reading them', () => {
  const path = join(temporaryFolder(), 'file');
  writeFileSync(path, '');
  checkBounded(path, BOUND);
  truncateSync(path, BOUND + 1);
  expect(() => checkBounded(path, BOUND)).toThrow('is larger than 128 KiB');
  expect(() => checkBounded('/dev/zero', BOUND)).toThrow('is a device, not a regular file');
  expect(() => checkBounded('/no/such', BOUND)).toThrow(/^[/]no[/]such: no such file or directory$/);
});
