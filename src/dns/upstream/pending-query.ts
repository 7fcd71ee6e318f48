import type { EdnsOption } from '#dns/wire/edns.js';
import type { NameKey, WireName } from '#dns/wire/name.js';

/** What upstreams are asked for. */
export type Asked = {
  readonly name: WireName;
  readonly key: NameKey;
  readonly type: number;
  readonly class: number;
  readonly recursionDesired: boolean;
  readonly checkingDisabled: boolean;
  readonly dnssecOk: boolean;
  /** Options that go with it. */
  readonly options: readonly EdnsOption[];
};
