import { readdir, readFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { constants } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check, libc } from '#libc/libc.js';

const AF_UNIX = 1;
const SOCK_STREAM_CLOEXEC = 0o2000001;
const TURNS = 100;

/**
 * Returns the epoll descriptor that the event loop of this thread waits on (libuv's `uv_backend_fd`). It
 * becomes readable when the loop has work: a message of another thread, or a connection. Node does not expose
 * it. /proc/self/fdinfo lists the descriptors that each epoll descriptor watches, so this searches for the
 * one that watches a socket read by this thread.
 */
export async function eventLoopDescriptor(): Promise<number> {
  const pair = new Int32Array(2);
  check('create a socket pair', libc.socketpair(AF_UNIX, SOCK_STREAM_CLOEXEC, 0, pair));
  const [read = -1, other = -1] = pair;
  // Both are Node sockets, so that they are closed if the thread is terminated before the end of the search.
  const reader = new Socket({ fd: read });
  const silent = new Socket({ fd: other, readable: false });
  try {
    for (let turn = 0; turn < TURNS; turn++) {
      await setImmediate();
      const found = await watcherOf(read);
      if (found !== undefined) return found;
    }
  } finally {
    reader.destroy();
    silent.destroy();
  }
  throw new KernelFailure("find this thread's event loop", constants.errno.ENOENT);
}

async function watcherOf(watched: number): Promise<number | undefined> {
  const line = new RegExp(`^tfd:\\s+${watched} `, 'm');
  for (const fd of await readdir('/proc/self/fdinfo')) {
    // A descriptor that was closed in the meantime is not the event loop's.
    const info = await readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => '');
    if (line.test(info)) return Number(fd);
  }
  return undefined;
}
