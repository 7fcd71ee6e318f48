import { isDeepStrictEqual } from 'node:util';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { ROUTES, ROUTES_BYTES, routeLines } from './route-lines.js';
import { readRoutes } from './routes.js';

/**
 * The routes are read only after the kernel has counted no route change for this many milliseconds. The
 * kernel counts some changes just before it makes them, so a read immediately after a count could miss the
 * change.
 */
const STOOD_STILL_MS = 100;
/**
 * Pause after a read of the routes: `ms` milliseconds, or `times` the duration of the read if that is
 * longer. If the routes cannot be copied, the pause is at least `longMs` milliseconds.
 */
const REST = { ms: 900, times: 50, longMs: 60_000 } as const;

/**
 * A copy of the node's plain routes in a BPF map, in which the datapath finds a route faster than in the
 * kernel. A plain route has one next hop and depends only on the destination address. The datapath compares
 * the kernel's counter of route changes with the counter of the copy, so that it does not use an outdated
 * copy.
 */
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

  /**
   * Reads the routes if they have not changed lately, and stores a new copy if they differ from the copy.
   * Only this method updates the copy, so it must be called about every second.
   */
  look(nowMs = performance.now()): void {
    if (!this.wanted) return;
    try {
      this.#look(nowMs);
    } catch (error) {
      if (!(error instanceof KernelFailure)) throw error;
      // The routes change all the time, do not fit into a netlink dump, or cannot be read. Remove the copy;
      // the datapath then uses the kernel's own route lookup.
      this.#release();
      this.#restUntilMs = nowMs + REST.longMs;
    }
  }

  /**
   * Whether the datapath uses the copy of the routes: a copy exists, and no route has changed since the copy
   * was made.
   */
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
    // Before a new copy is stored, read the routes a second time and compare. The kernel does not count
    // every change that can move routes during a dump.
    const isSure = !isNew || isDeepStrictEqual(readLines(), lines);
    const tookMs = performance.now() - began;
    this.#restUntilMs = nowMs + tookMs + (lines === null ? REST.longMs : Math.max(REST.ms, REST.times * tookMs));
    if (lines === null || !isSure || this.#changes() !== changes) this.#release();
    else this.#keep(lines, changes, isNew);
  }

  #holds(lines: Uint32Array): boolean {
    const { words } = this.#memory;
    return words[ROUTES.hold] === 1 && words.subarray(LINE_WORDS).every((word, at) => word === lines[at]);
  }

  #release(): void {
    Atomics.store(this.#memory.words, ROUTES.hold, 0);
  }

  /** Stores the copy if it is new, and the value of the change counter for which the copy is valid. */
  #keep(lines: Uint32Array, changes: number, isNew: boolean): void {
    const { words } = this.#memory;
    if (isNew) {
      this.#release();
      awaitGracePeriod();
      words.set(lines, LINE_WORDS);
    }
    Atomics.store(words, ROUTES.made, changes);
    Atomics.store(words, ROUTES.hold, 1);
  }

  /** Returns the kernel's counter of route changes; undefined if this kernel does not have the counter. */
  #changes(): number | undefined {
    if (this.#see.run() !== 0) return undefined;
    return this.#memory.words[ROUTES.seen];
  }
}

/** Reads the routes and returns the cache lines of their copy; null if the routes cannot be copied. */
function readLines(): Uint32Array | null {
  const routes = readRoutes();
  return routes === null ? null : routeLines(routes);
}
