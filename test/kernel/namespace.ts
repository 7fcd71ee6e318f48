import { closeSync, openSync } from 'node:fs';
import koffi from 'koffi';

const CLONE_NEWNET = 0x4000_0000;

/**
 * Moves this thread, and processes that it starts from now on, into a network namespace. Returns a function
 * that moves it back.
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
