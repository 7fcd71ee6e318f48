import { isDeepStrictEqual } from 'node:util';
import { LINE_WORDS } from '#contracts/datapath-numbers.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { TestRun } from '#libc/test-run.js';
import { ROUTES, ROUTES_BYTES, routeLines } from './route-lines.js';
import { readRoutes } from './routes.js';

/**
 * The kernel counts some changes just before it makes them. After routes were unchanged for this time, no
 * counted change is still pending.
 */
const STOOD_STILL_MS = 100;
/**
 * Pauses between reads: at least `REST_MS`, and `REST_TIMES` times the duration of a read; `LONG_REST_MS` if
 * the routes cannot be copied.
 */
const REST_MS = 900;
const REST_TIMES = 50;
const LONG_REST_MS = 60_000;

/**
 * A copy of plain routes that the kernel program reads. The program compares the kernel's counter of changes,
 * so that it never uses an outdated copy.
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
   * Call often: copies the routes if they did not change since an earlier call, and compares the copy with
   * its predecessor.
   */
  look(nowMs = performance.now()): void {
    if (!this.wanted) return;
    try {
      this.#look(nowMs);
    } catch (error) {
      if (!(error instanceof KernelFailure)) throw error;
      // Routes change all the time, do not fit into a dump, or cannot be read: the program uses kernel
      // lookups.
      this.#letGo();
      this.#restUntilMs = nowMs + LONG_REST_MS;
    }
  }

  /** Whether the kernel program uses the copy. */
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
    // The kernel does not count every change that can move routes during a read.
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

  /** Stores the copy with the number of changes that it is valid for. */
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

  /** Undefined if this kernel does not count changes. */
  #changes(): number | undefined {
    if (this.#see.run() !== 0) return undefined;
    return this.#memory.words[ROUTES.seen];
  }
}

/** Null if the routes cannot be copied. */
function readLines(): Uint32Array | null {
  const routes = readRoutes();
  return routes === null ? null : routeLines(routes);
}
