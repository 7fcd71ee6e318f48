import { ADDRESSES } from '#cli/tour/topology.js';
import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import type { EtcdOptions } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { fetchBodies } from '#cluster/parts.js';
import { Bodies } from '#store/policies/bodies.js';
import type { PolicyRow } from '#store/policies/policy-row.js';
import { RECORDS } from '#store/records/records.js';
import { StoreError } from '#store/store-error.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { FIRST_PROBE_PORT, PROBE_PORTS } from './probe-flows.js';

const WITHIN = { withinMs: 3_000 };
const keys = new ClusterKeys('/weir');

/** Returns the value number `count`: an IPv4 address. */
export const numberedValue = (count: number): string => `10.${count >> 16}.${(count >> 8) & 255}.${count & 255}`;

/**
 * Returns the policy with a value: the address in its first source group. Each write of a run has another
 * value. The second group allows the probes to the ports in `codeOf(value)`.
 */
export const policyOf = (value: string) => ({
  default_policy: 'deny',
  source_groups: [
    { id: 'value', mode: 'enforce', sources: { ips: [value] }, rules: [] },
    {
      id: 'probes',
      mode: 'enforce',
      sources: { ips: [ADDRESSES.client] },
      rules: [{ id: 'allowed', action: 'allow', match: { proto: 'udp', dst_ports: portsOf(codeOf(value)) } }],
    },
  ],
});

/**
 * Returns the verdicts of a policy for the probe ports, one bit for each port. All policies allow the first
 * port and deny the last port. The other bits are the number of the value.
 */
export function codeOf(value: string): number {
  const [, high = 0, middle = 0, low = 0] = value.split('.').map(Number);
  return ((((high << 16) | (middle << 8) | low) << 1) | 1) & ((1 << (PROBE_PORTS - 1)) - 1);
}

function portsOf(code: number): number[] {
  const indexes = Array.from({ length: PROBE_PORTS }, (_, index) => index);
  return indexes.filter((index) => ((code >> index) & 1) === 1).map((index) => FIRST_PROBE_PORT + index);
}

export function valueIn(policy: string): string {
  const value = /"ips":\["([^"]+)"\]/.exec(policy)?.[1];
  if (value === undefined) throw new Error(`a policy has no value: ${policy}`);
  return value;
}

/** Reads the policies of a cluster from etcd, past the nodes. Throws if a part is missing. */
export class StoredValues {
  readonly #client: EtcdClient;
  readonly #kv = createMemoryStore();

  constructor(options: EtcdOptions) {
    this.#client = new EtcdClient(options);
  }

  /** Returns the value of the active policy, linearizably. */
  async active(): Promise<string> {
    const { entries } = await this.#client.range(keys.shared, WITHIN);
    const valueAt = (local: string) => entries.find(({ key }) => keys.local(key) === local)?.value;
    const head = valueAt('head');
    if (head === undefined) throw new Error('etcd has no head');
    const key = `policy/${RECORDS.head.read('head', head).active}`;
    const row = valueAt(key);
    if (row === undefined) throw new Error('etcd lacks the active policy');
    return this.#valueOf(RECORDS.policy.read(key, row));
  }

  /**
   * Returns the values of all revisions of the policy, in the order of their commits; null for a revision
   * whose text etcd lacks.
   */
  async history(): Promise<(string | null)[]> {
    const { entries } = await this.#client.range(keys.history, { withinMs: 10_000 });
    const rows = entries.map(({ key, value }) => RECORDS.history.read(keys.nameOf(key), value));
    rows.sort((left, right) => left.revision - right.revision);
    const values: (string | null)[] = [];
    for (const row of rows)
      values.push(
        await this.#valueOf(row).catch((failure: unknown) => {
          if (failure instanceof StoreError && failure.code === 'store_damaged') return null;
          throw failure;
        }),
      );
    return values;
  }

  close(): void {
    this.#client.close();
  }

  async #valueOf({ body_sha256: sha256 }: PolicyRow): Promise<string> {
    const parts = await fetchBodies(this.#client, keys, this.#kv, [sha256]);
    if (parts.length > 0) await this.#kv.batch(parts, { sync: false });
    return valueIn(Buffer.from(await new Bodies(this.#kv).read(sha256)).toString());
  }
}
