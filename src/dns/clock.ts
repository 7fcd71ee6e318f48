/** Returns the time of the monotonic clock in milliseconds, with a fraction. */
export function nowMs(): number {
  return performance.now();
}

const HRTIME_AHEAD_NS = Number(process.hrtime.bigint()) - performance.now() * 1e6;

/** Converts a time returned by `nowMs` to nanoseconds on the clock of `process.hrtime`. */
export function monotonicNs(ms: number): number {
  return ms * 1e6 + HRTIME_AHEAD_NS;
}

/** Converts a time returned by `nowMs` to milliseconds since 1970. */
export function wallMs(ms: number): number {
  return Date.now() + Math.round(ms - performance.now());
}
