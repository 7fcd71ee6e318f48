/** A sorted list of starts. Each value holds from its start to the next one. The first start is 0. */
export type Intervals = { readonly starts: Uint32Array; readonly values: Uint32Array };

/** Many interval maps in one pair of arrays. Map `m` is the slice `offsets[m]` … `offsets[m + 1]`. */
export type IntervalPool = Intervals & { readonly offsets: Uint32Array };
