import { interval, type Subscription } from 'rxjs';

/**
 * The usual rate of denials of a node is computed from samples of the last ten minutes: the time between two
 * samples in milliseconds, and the number of samples.
 */
const SAMPLE_MS = 10_000;
const SAMPLES = 60;
/**
 * The rate of denials per second that a node may always have, and the factor by which the rate may exceed the
 * usual rate.
 */
const LEAST_LIMIT = 10;
const FACTOR = 3;

export type HealthPorts = {
  /** Returns the generation that the node enforces. */
  readonly generation: () => number;
  readonly failedChecks: () => readonly string[];
  /** Returns the number of packets, lookups, connections and requests that the node has denied. */
  readonly denied: () => Promise<number>;
  /** Returns the time of a monotonic clock in milliseconds. */
  readonly now?: () => number;
};
type Sample = { readonly at: number; readonly denied: number };

/**
 * The health of this node during a roll-out. The node has a fault while it does not enforce the change, is
 * not ready, or denies too much: more than 10 per second, and more than 3 times the median of the ten minutes
 * before the roll-out.
 */
export class CanaryHealth {
  readonly #ports: Required<HealthPorts>;
  readonly #rates: number[] = [];
  #sampled: Sample | null = null;

  constructor(ports: HealthPorts) {
    this.#ports = { now: () => performance.now(), ...ports };
  }

  /** Measures the usual rate of denied packets, until the subscription ends. */
  watch(): Subscription {
    return interval(SAMPLE_MS).subscribe(() => void this.sample());
  }

  /** Measures the rate of denied packets since the last call. */
  async sample(): Promise<void> {
    const now = await this.#read();
    const rate = rateBetween(this.#sampled, now);
    this.#sampled = now;
    if (rate === null) return;
    this.#rates.push(rate);
    if (this.#rates.length > SAMPLES) this.#rates.shift();
  }

  /**
   * Begins to observe this node during a roll-out of `generation`. The returned function returns the fault of
   * the node as a sentence, or null if the node is healthy. Each call measures the rate of denials since the
   * previous call.
   */
  observe(generation: number): () => Promise<string | null> {
    const limit = Math.max(LEAST_LIMIT, FACTOR * median(this.#rates));
    let last: Sample | null = null;
    return async () => {
      const checks = this.#ports.failedChecks();
      const now = await this.#read();
      const rate = rateBetween(last, now);
      last = now;
      const enforced = this.#ports.generation();
      if (enforced !== generation) return `it enforces generation ${enforced}`;
      if (checks.length > 0) return `it is not ready (${checks.join(', ')})`;
      if (now === null) return 'its counters cannot be read';
      if (rate === null || rate <= limit) return null;
      return `it denies more than ${Math.round(limit)} packets or requests a second`;
    };
  }

  /** Returns null if the counters cannot be read, for example while the datapath thread is replaced. */
  async #read(): Promise<Sample | null> {
    const denied = await this.#ports.denied().catch(() => null);
    return denied === null ? null : { at: this.#ports.now(), denied };
  }
}

/** Returns denials per second; null if a sample is missing, or if the counters were reset in between. */
function rateBetween(before: Sample | null, now: Sample | null): number | null {
  if (before === null || now === null || now.denied < before.denied || now.at <= before.at) return null;
  return ((now.denied - before.denied) * 1_000) / (now.at - before.at);
}

function median(rates: readonly number[]): number {
  const sorted = [...rates].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
