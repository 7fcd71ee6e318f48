import { LINE_WORDS } from '#dataplane/program/numbers.js';
import { ROUTES, ROUTES_BYTES, routeLines } from '#dataplane/program/route-lines.js';
import { KernelFailure } from '#libc/failure.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { TestRun } from '#libc/test-run.js';
import type { BpfObject } from './bpf-object.js';
import { awaitGracePeriod } from './grace-period.js';
import { readRoutes } from './routes.js';

/** A change is counted before it is made: what stood still for so long is not under way any more. */
const STOOD_STILL_MS = 100;
/** Reading routes takes its time: so long they are not read again, and so long where they cannot be copied. */
const REST_MS = 900;
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
    const changes = this.#changes();
    if (changes !== this.#seen.changes) this.#seen = { changes, atMs: nowMs };
    if (changes === undefined || nowMs - this.#seen.atMs < STOOD_STILL_MS || nowMs < this.#restUntilMs) return;
    const lines = readLines();
    this.#restUntilMs = nowMs + (lines === null ? LONG_REST_MS : REST_MS);
    this.#keep(this.#changes() === changes ? lines : null, changes);
  }

  unmap(): void {
    this.#memory.unmap();
  }

  /** In `changes` packets that came in see the routes as they are in these lines. */
  #keep(lines: Uint32Array | null, changes: number): void {
    const { words } = this.#memory;
    const held = words.subarray(LINE_WORDS);
    if (words[ROUTES.hold] === 1 && lines !== null) {
      if (words[ROUTES.made] === changes && held.every((word, at) => word === lines[at])) return;
    }
    Atomics.store(words, ROUTES.hold, 0);
    if (lines === null) return;
    awaitGracePeriod();
    held.set(lines);
    words[ROUTES.made] = changes;
    Atomics.store(words, ROUTES.hold, 1);
  }

  /** Undefined where this kernel does not count them. */
  #changes(): number | undefined {
    if (this.#see.run() !== 0) return undefined;
    return this.#memory.words[ROUTES.seen];
  }
}

/** Null where there is nothing to copy: the kernel is asked then. */
function readLines(): Uint32Array | null {
  try {
    const routes = readRoutes();
    return routes === null ? null : routeLines(routes);
  } catch (error) {
    // Routes that change all the time, or more of them than a dump takes.
    if (error instanceof KernelFailure) return null;
    throw error;
  }
}
