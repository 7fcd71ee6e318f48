import { closeSync, openSync } from 'node:fs';
import koffi from 'koffi';
// Configures Koffi, which is possible only before a library is loaded.
import '#libc/library.js';

const CLONE_NEWNET = 0x4000_0000;

/**
 * Moves this thread into a network namespace. Processes that the thread starts later are in the same
 * namespace. Returns a function that moves the thread back.
 */
export function enterNamespace(name: string): () => void {
  const back = openSync('/proc/thread-self/ns/net', 'r');
  const there = openSync(`/run/netns/${name}`, 'r');
  const setns = koffi.load(null).func('int setns(int fd, int type)') as (fd: number, type: number) => number;
  const move = (fd: number): void => {
    if (setns(fd, CLONE_NEWNET) !== 0) throw new Error(`setns: errno ${koffi.errno()}`);
    closeSync(fd);
  };
  move(there);
  return () => move(back);
}
