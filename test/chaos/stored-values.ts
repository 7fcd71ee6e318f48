import { EtcdClient } from '#cluster/etcd/etcd-client.js';
import type { EtcdOptions } from '#cluster/etcd/etcd-types.js';
import { ClusterKeys } from '#cluster/keys.js';
import { fetchBodies } from '#cluster/parts.js';
import { Bodies } from '#store/bodies.js';
import { decodeJson } from '#store/json-value.js';
import type { PolicyHead, PolicyRow } from '#store/policy-row.js';
import { createMemoryStore } from '#test/store/memory-store.js';

const WITHIN = { withinMs: 3_000 };
const keys = new ClusterKeys('/weir');

/** The value of a policy: the address in its only source group. Each write of a run has another address. */
export const policyOf = (value: string) => ({
  default_policy: 'deny',
  source_groups: [{ id: 'lan', mode: 'enforce', sources: { ips: [value] }, rules: [] }],
});
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
    const row = valueAt(`policy/${decodeJson<PolicyHead>(head).active}`);
    if (row === undefined) throw new Error('etcd lacks the active policy');
    return this.#valueOf(decodeJson<PolicyRow>(row));
  }

  /** Returns the values of all revisions of all policies. */
  async history(): Promise<string[]> {
    const { entries } = await this.#client.range(keys.history, { withinMs: 10_000 });
    const values: string[] = [];
    for (const { value } of entries) values.push(await this.#valueOf(decodeJson<PolicyRow>(value)));
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
