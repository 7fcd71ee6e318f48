import { parentPort, workerData } from 'node:worker_threads';
import { CHANGES, MEMBER_LINE, memberLines } from '#dataplane/members/member-layout.js';
import { MappedMemory } from '#libc/mapped-memory.js';

export type CountingInput = { readonly membersFd: number; readonly stop: SharedArrayBuffer };

/** Counts changes of members without a pause, until `stop` is not 0. */
const { membersFd, stop } = workerData as CountingInput;
const stopped = new Int32Array(stop);
const members = new MappedMemory('members', membersFd, memberLines('ipv4') * MEMBER_LINE.words * 4);
parentPort?.postMessage('counting');
while (Atomics.load(stopped, 0) === 0) Atomics.add(members.words, CHANGES, 2);
members.unmap();
