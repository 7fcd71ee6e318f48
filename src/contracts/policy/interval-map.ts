/**
 * An interval map of unsigned 32-bit numbers. `starts` is sorted and begins with 0. `values[i]` applies from
 * `starts[i]` up to the next start, which is excluded.
 */
export type Intervals = { readonly starts: Uint32Array; readonly values: Uint32Array };

/**
 * Many interval maps in one pair of arrays. Map number `m` has the intervals with the indexes `offsets[m]` …
 * `offsets[m + 1] - 1`.
 */
export type IntervalPool = Intervals & { readonly offsets: Uint32Array };
