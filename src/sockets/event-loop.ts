import { readdir, readFile } from 'node:fs/promises';
import { Socket } from 'node:net';
import { constants } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check, libc } from '#libc/libc.js';
import { AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM } from '#libc/socket-numbers.js';

const TURNS = 100;

/**
 * Returns the epoll descriptor on which the event loop of this thread waits (libuv's `uv_backend_fd`). The
 * descriptor becomes readable when the event loop has work, such as a connection or a message of another
 * thread. Node has no API that returns the descriptor. /proc/self/fdinfo lists the descriptors that each
 * epoll descriptor watches. So this function makes the event loop watch a socket, and looks for the epoll
 * descriptor that watches this socket.
 */
export async function eventLoopDescriptor(): Promise<number> {
  const pair = new Int32Array(2);
  check('create a socket pair', libc.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
  const [read = -1, other = -1] = pair;
  // Give both descriptors to Node sockets, so that Node closes the descriptors if the thread is terminated
  // during the search.
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
    // If another thread has closed the descriptor since `readdir`, the read fails, and the search skips the
    // descriptor.
    const info = await readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => '');
    if (line.test(info)) return Number(fd);
  }
  return undefined;
}
