import type { EdnsOption } from '#dns/wire/edns.js';
import type { NameKey, WireName } from '#dns/wire/name.js';

/** A question to upstreams. */
export type UpstreamQuery = {
  readonly name: WireName;
  readonly key: NameKey;
  readonly type: number;
  readonly class: number;
  readonly recursionDesired: boolean;
  readonly checkingDisabled: boolean;
  readonly dnssecOk: boolean;
  /** The EDNS options of the query. */
  readonly options: readonly EdnsOption[];
};
