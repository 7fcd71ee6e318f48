import { type Observable, Subject } from 'rxjs';
import { backoffMs } from '#contracts/backoff.js';
import { NO_SELECTORS, type SelectorResolution } from '#contracts/kubernetes/membership.js';
import { isSameResolution } from '#policy/model/sources/same-sources.js';

/** The time in milliseconds between a change and its compilation, which then includes further changes. */
const COALESCE_MS = 20;
/**
 * The minimum time in milliseconds between two compilations for changed members (addresses that Kubernetes
 * objects own), so that they do not delay other writes and requests.
 */
const BETWEEN_MS = 200;
const MAX_WAIT_MS = 30_000;
const MAX_RESOLUTION_WAIT_MS = 2_000;

/**
 * Requests a compilation of the policy in force while it is outdated: the selectors were resolved in another
 * way when it was compiled, or it lacks rules for members.
 */
export class CompileDemand {
  readonly #outdated = new Subject<void>();
  #timer: NodeJS.Timeout | undefined;
  #due = 0;
  /** The resolved selectors and the networks of pods in the last message of the Kubernetes thread. */
  #resolution: SelectorResolution = NO_SELECTORS;
  /** The selector resolution with which the policy in force was compiled; null if it has no selectors. */
  #resolutionInForce: SelectorResolution | null = null;
  /**
   * Whether `#resolution` differs from `#resolutionInForce`. This is stored, because the comparison of
   * thousands of selectors is slow.
   */
  #isResolutionOutdated = false;
  /** The number of addresses that match no allow rule by a selector until the policy is compiled again. */
  #uncompiled = 0;
  /** The number of successive compilations after which the policy was still outdated. */
  #compilations = 0;
  #flippedAt = Number.NEGATIVE_INFINITY;

  /** Emits when the policy in force must be compiled again for the present addresses of its selectors. */
  readonly outdated: Observable<void> = this.#outdated;

  /** The present selector resolution. */
  get resolution(): SelectorResolution {
    return this.#resolution;
  }

  /**
   * Must be called after each message of the Kubernetes thread. `resolution`: undefined if the message did
   * not change it.
   */
  received(resolution: SelectorResolution | undefined): void {
    if (resolution !== undefined) {
      this.#resolution = resolution;
      this.#compareResolutions();
    }
    this.#demand();
  }

  /** Must be called when a policy was put in force, with the selector resolution of its compilation. */
  activated(resolution: SelectorResolution | null): void {
    this.#resolutionInForce = resolution;
    this.#compareResolutions();
    this.#demand();
  }

  /** Must be called when a program was put in force that lacks the allow rules of `uncompiled` addresses. */
  flipped(uncompiled: number): void {
    this.#uncompiled = uncompiled;
    this.#flippedAt = performance.now();
    if (uncompiled === 0) this.#compilations = 0;
    this.#demand();
  }

  /** Must be called when `uncompiled` further addresses need allow rules that the program lacks. */
  membersChanged(uncompiled: number): void {
    this.#uncompiled += uncompiled;
    this.#demand();
  }

  close(): void {
    clearTimeout(this.#timer);
  }

  /**
   * Schedules a compilation if the policy is outdated. If a compilation is scheduled already, the earlier of
   * the two times applies.
   */
  #demand(): void {
    if (!this.#isOutdated()) return;
    const due = performance.now() + this.#waitMs();
    if (this.#timer !== undefined && this.#due <= due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isOutdated()) return;
      this.#compilations++;
      this.#outdated.next();
    }, due - performance.now());
    this.#timer.unref();
  }

  /**
   * Returns the time in milliseconds to wait before the next compilation. The time grows with each
   * compilation after which the policy is still outdated, up to 30 s. If the resolution has changed, it grows
   * only up to 2 s, because deny rules for new networks are not in force until the compilation.
   */
  #waitMs(): number {
    const pauseMs = Math.max(COALESCE_MS, this.#flippedAt + BETWEEN_MS - performance.now());
    if (this.#compilations === 0) return pauseMs;
    const mostMs = this.#isResolutionOutdated ? MAX_RESOLUTION_WAIT_MS : MAX_WAIT_MS;
    return Math.max(pauseMs, backoffMs(this.#compilations, BETWEEN_MS, mostMs));
  }

  #compareResolutions(): void {
    this.#isResolutionOutdated =
      this.#resolutionInForce !== null && !isSameResolution(this.#resolutionInForce, this.#resolution);
  }

  #isOutdated(): boolean {
    return this.#isResolutionOutdated || (this.#resolutionInForce !== null && this.#uncompiled > 0);
  }
}
