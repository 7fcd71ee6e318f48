import type { EdnsOption } from '#dns/wire/message/edns.js';
import type { NameKey, WireName } from '#dns/wire/name.js';

export type UpstreamQuery = {
  readonly name: WireName;
  readonly key: NameKey;
  readonly type: number;
  readonly class: number;
  readonly recursionDesired: boolean;
  readonly checkingDisabled: boolean;
  readonly dnssecOk: boolean;
  /** The EDNS options that the query to the upstream contains. */
  readonly options: readonly EdnsOption[];
};
