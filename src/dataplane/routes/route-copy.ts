import { isDeepStrictEqual } from 'node:util';
import { LINE_WORDS } from '#contracts/datapath-numbers.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { TestRun } from '#libc/test-run.js';
import { ROUTES, ROUTES_BYTES, routeLines } from './route-lines.js';
import { readRoutes } from './routes.js';

/** Some changes are counted just before they are made: what stood still for so long is not under way any more. */
const STOOD_STILL_MS = 100;
/** So long routes are not read again, and so many times as long as that took; and so long where they cannot be copied. */
const REST_MS = 900;
const REST_TIMES = 50;
const LONG_REST_MS = 60_000;

/** The kernel's copy of plain routes. It counts the changes of the real ones by itself, so that an old copy is not gone by. */
export class RouteCopy {
  readonly #memory: MappedMemory;
  readonly #see: TestRun;
  #seen: { readonly changes: number | undefined; readonly atMs: number } = { changes: undefined, atMs: 0 };
  #restUntilMs = 0;

  constructor(
    object: BpfObject,
    readonly wanted: boolean,
  ) {
    this.#memory = new MappedMemory('routes', object.mapFd('routes'), ROUTES_BYTES);
    this.#see = new TestRun(object.programFd('weir_see_routes'), undefined, undefined, undefined);
  }

  /** To be called often enough: what it finds unchanged since an earlier call is copied, and compared with what was. */
  look(nowMs = performance.now()): void {
    if (!this.wanted) return;
    try {
      this.#look(nowMs);
    } catch (error) {
      if (!(error instanceof KernelFailure)) throw error;
      // Routes that change all the time, more of them than a dump takes, or none that can be seen: the kernel is asked.
      this.#letGo();
      this.#restUntilMs = nowMs + LONG_REST_MS;
    }
  }

  /** Whether packets go by it. */
  get isInForce(): boolean {
    const { words } = this.#memory;
    return words[ROUTES.hold] === 1 && words[ROUTES.made] === this.#changes();
  }

  unmap(): void {
    this.#memory.unmap();
  }

  #look(nowMs: number): void {
    const changes = this.#changes();
    if (changes !== this.#seen.changes) this.#seen = { changes, atMs: nowMs };
    if (changes === undefined || nowMs - this.#seen.atMs < STOOD_STILL_MS || nowMs < this.#restUntilMs) return;
    const began = performance.now();
    const lines = readLines();
    const isNew = lines !== null && !this.#holds(lines);
    // Not all that moves routes about while they are read is counted.
    const isSure = !isNew || isDeepStrictEqual(readLines(), lines);
    const tookMs = performance.now() - began;
    this.#restUntilMs = nowMs + tookMs + (lines === null ? LONG_REST_MS : Math.max(REST_MS, REST_TIMES * tookMs));
    if (lines === null || !isSure || this.#changes() !== changes) this.#letGo();
    else this.#keep(lines, changes, isNew);
  }

  #holds(lines: Uint32Array): boolean {
    const { words } = this.#memory;
    return words[ROUTES.hold] === 1 && words.subarray(LINE_WORDS).every((word, at) => word === lines[at]);
  }

  #letGo(): void {
    Atomics.store(this.#memory.words, ROUTES.hold, 0);
  }

  /** In `changes` packets that came in see the routes as they are in these lines. */
  #keep(lines: Uint32Array, changes: number, isNew: boolean): void {
    const { words } = this.#memory;
    if (isNew) {
      this.#letGo();
      awaitGracePeriod();
      words.set(lines, LINE_WORDS);
    }
    Atomics.store(words, ROUTES.made, changes);
    Atomics.store(words, ROUTES.hold, 1);
  }

  /** Undefined where this kernel does not count them. */
  #changes(): number | undefined {
    if (this.#see.run() !== 0) return undefined;
    return this.#memory.words[ROUTES.seen];
  }
}

/** Null where they are not to be copied. */
function readLines(): Uint32Array | null {
  const routes = readRoutes();
  return routes === null ? null : routeLines(routes);
}
