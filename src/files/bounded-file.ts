import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs';
import { open } from 'node:fs/promises';
import { withPath } from './system-failure.js';

const { O_RDONLY, O_NOCTTY, O_NONBLOCK, O_NOFOLLOW } = constants;
const CHUNK_BYTES = 64 * 1024;
const KIB = 1024;
const MIB = 1024 * KIB;

/** The maximum size in bytes for each kind of file. */
export const MAX_BYTES = { secret: 64 * KIB, config: MIB, certificates: 16 * MIB, policy: 64 * MIB } as const;

/**
 * The error for a file that is not a regular file, or that is too large. System errors such as ENOENT keep
 * their own class.
 */
class UnfitFile extends Error {
  override readonly name = 'UnfitFile';
  constructor(
    readonly code: 'not_a_regular_file' | 'file_too_large',
    message: string,
  ) {
    super(message);
  }
}

/**
 * Reads a regular file of at most `maxBytes` bytes. Refuses a FIFO, because a read could wait forever for a
 * writer and block a thread of the libuv thread pool. Checks the size during the read too, because a file can
 * grow, and files in /proc report the size 0.
 */
export async function readBounded(path: string, maxBytes: number): Promise<Buffer> {
  try {
    const file = await open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
    try {
      const content = new Content(path, maxBytes, regular(path, await file.stat()));
      while (content.add((await file.read(content.chunk())).bytesRead));
      return content.bytes();
    } finally {
      await file.close();
    }
  } catch (failure) {
    throw withPath(path, failure);
  }
}

/** Does the same as `readBounded`, but synchronously. */
export function readBoundedSync(path: string, maxBytes: number): Buffer {
  return readOpened(path, maxBytes, O_NONBLOCK, regular);
}

/** Does the same as `readBoundedSync`, but refuses a symbolic link (ELOOP) as the last part of the path. */
export function readUnlinkedSync(path: string, maxBytes: number): Buffer {
  return readOpened(path, maxBytes, O_NONBLOCK | O_NOFOLLOW, regular);
}

/**
 * Reads a file that a user named on the command line. Does the same as `readBoundedSync`, but also accepts a
 * pipe such as the shell's `<(…)`, and waits for the writer of the pipe.
 */
export function readPipeOrFile(path: string, maxBytes: number): Buffer {
  return readOpened(path, maxBytes, 0, (_, stats) => (stats.isFIFO() ? stats : regular(path, stats)));
}

/**
 * Throws an error if the file cannot be opened, is not a regular file, or is now larger than `maxBytes`
 * bytes. Reads no byte of the file.
 */
export function checkBounded(path: string, maxBytes: number): void {
  withOpened(path, O_NONBLOCK, (fd) => new Content(path, maxBytes, regular(path, fstatSync(fd))));
}

function readOpened(
  path: string,
  maxBytes: number,
  flags: number,
  check: (path: string, stats: Stats) => Stats,
): Buffer {
  return withOpened(path, flags, (fd) => {
    const content = new Content(path, maxBytes, check(path, fstatSync(fd)));
    while (content.add(readSync(fd, content.chunk().buffer)));
    return content.bytes();
  });
}

function withOpened<T>(path: string, flags: number, use: (fd: number) => T): T {
  try {
    const fd = openSync(path, O_RDONLY | O_NOCTTY | flags);
    try {
      return use(fd);
    } finally {
      closeSync(fd);
    }
  } catch (failure) {
    throw withPath(path, failure);
  }
}

function regular(path: string, stats: Stats): Stats {
  if (stats.isFile()) return stats;
  throw new UnfitFile('not_a_regular_file', `${path} is ${kindOf(stats)}, not a regular file`);
}

function kindOf(stats: Stats): string {
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a FIFO';
  if (stats.isCharacterDevice() || stats.isBlockDevice()) return 'a device';
  return 'a socket';
}

/**
 * Collects the bytes of a file while it is read. Throws an `UnfitFile` error if the file is larger than
 * `maxBytes` bytes.
 */
class Content {
  readonly #chunks: Buffer[] = [];
  #length = 0;
  #next = Buffer.alloc(0);

  constructor(
    readonly path: string,
    readonly maxBytes: number,
    stats: Stats,
  ) {
    this.#limit(stats.size);
  }

  /** Returns a buffer to which the next read writes. */
  chunk(): { readonly buffer: Buffer } {
    this.#next = Buffer.allocUnsafe(CHUNK_BYTES);
    return { buffer: this.#next };
  }

  /**
   * Adds the first `bytes` bytes of the buffer that `chunk` returned last. Returns false if `bytes` is 0,
   * which means the end of the file.
   */
  add(bytes: number): boolean {
    this.#limit(this.#length + bytes);
    this.#chunks.push(this.#next.subarray(0, bytes));
    this.#length += bytes;
    return bytes > 0;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#chunks, this.#length);
  }

  #limit(bytes: number): void {
    if (bytes <= this.maxBytes) return;
    throw new UnfitFile('file_too_large', `${this.path} is larger than ${this.maxBytes / KIB} KiB`);
  }
}
