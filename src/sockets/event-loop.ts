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
 * The descriptor by which the event loop of this thread waits (libuv's `uv_backend_fd`). Who waits for it knows when the
 * loop has something to do: a message of another thread, a connection. Node does not tell it, but the kernel tells of each
 * epoll descriptor what it watches, and one watches what this thread reads from.
 */
export async function eventLoopDescriptor(): Promise<number> {
  const pair = new Int32Array(2);
  check('make a pair of sockets', libc.socketpair(AF_UNIX, SOCK_STREAM_CLOEXEC, 0, pair));
  const [read = -1, other = -1] = pair;
  // Both are Node's, so that neither outlives a thread that is ended in between.
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
    // One that is closed in the meantime watches nothing.
    const info = await readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => '');
    if (line.test(info)) return Number(fd);
  }
  return undefined;
}
