import type { RecordKind } from '#store/records/record-kind.js';
import { RECORDS } from '#store/records/records.js';
import type { EtcdClient } from './etcd/etcd-client.js';
import { type KeyRange, under } from './etcd/etcd-types.js';
import { CLUSTER_RECORDS, REPLICATED_RECORDS } from './records.js';

const HEAD = RECORDS.head.prefix;
/**
 * Prefixes of the local keys that each node keeps as a replica of etcd, beside the key `head`. The parameter
 * `local` of `ClusterKeys` lists settings below these prefixes that stay on their node.
 */
const REPLICATED = [
  ...new Set(REPLICATED_RECORDS.map(({ prefix }) => prefix.replace(/[/].*/, '/')).filter((prefix) => prefix !== HEAD)),
];
/**
 * Prefixes of the local keys that a replica reads from etcd on demand: parts of policy texts, and old
 * revisions.
 */
const ON_DEMAND = ['part/', 'parts/', 'history/'] as const;

const SEQUENCE_DIGITS = 12;

/** The id of an entry of the cluster's write lock, and the node that made the entry. */
export type LockKey = { readonly id: string; readonly node: string };

/**
 * The keys of a cluster in etcd. A replicated local key is below `PREFIX/shared/`, beside the short-lived
 * keys `turn/…`, `change/…` and `leader`. One watch of this prefix emits all of them in one order.
 *
 *     PREFIX/shared/{meta, head, policy/ID, setting/…, integration/…, cluster-token/ID, token-key/KID}
 *     PREFIX/shared/{cluster-node/NODE, removed-node/IDENTITY} PREFIX/shared/{turn/ID, leader} on the lease
 *     of a node; turn: the write lock PREFIX/shared/change/ID on a lease with the time of a pending change
 *     PREFIX/shared/history-swept: written whenever old revisions are removed
 *     PREFIX/{part/HASH, parts/HASH, history/ID/REVISION} PREFIX/commit/SEQUENCE the id of each commit
 *     PREFIX/{member/NODE, vote/WRITER/ENTRY/NODE, rollout/CHANGE/NODE} on the lease of a node
 */
export class ClusterKeys {
  readonly shared: KeyRange;
  readonly #prefix: string;
  readonly #local: ReadonlySet<string>;

  /** `local`: keys that are not copied to etcd, although other keys with their prefix are. */
  constructor(prefix: string, local: readonly string[] = []) {
    this.#prefix = prefix;
    this.#local = new Set(local);
    this.shared = under(`${prefix}/shared/`);
  }

  readonly #of = (name: string): string => `${this.#prefix}/${name}`;

  get meta(): string {
    return this.#of(`shared/${CLUSTER_RECORDS.meta.prefix}`);
  }
  get leader(): string {
    return this.#of(`shared/${CLUSTER_RECORDS.leader.prefix}`);
  }
  get members(): KeyRange {
    return under(this.#of(CLUSTER_RECORDS.member.prefix));
  }
  get lockEntries(): KeyRange {
    return under(this.lockEntry(''));
  }
  get bodies(): readonly KeyRange[] {
    return [under(this.#of('part/')), under(this.#of('parts/'))];
  }
  lockEntry(id: string): string {
    return this.#of(`shared/${CLUSTER_RECORDS.lockEntry.prefix}${id}`);
  }
  get changes(): KeyRange {
    return under(this.change(''));
  }
  /** Returns the key in etcd that expires at the deadline of an unconfirmed policy change. */
  change(id: string): string {
    return this.#of(`shared/change/${id}`);
  }
  /** Returns the range of the health reports of the nodes that enforce a roll-out first. */
  reports(change: string): KeyRange {
    return under(this.#of(`${CLUSTER_RECORDS.report.prefix}${change}/`));
  }
  report(change: string, node: string): string {
    return `${this.reports(change).from}${node}`;
  }
  commit(sequence: number): string {
    return this.#of(`commit/${String(sequence).padStart(SEQUENCE_DIGITS, '0')}`);
  }
  member(node: string): string {
    return this.#of(`${CLUSTER_RECORDS.member.prefix}${node}`);
  }
  /** Returns the id of the node in a key below `PREFIX/member/`. */
  memberOf(key: string): string {
    return key.slice(this.members.from.length);
  }
  /** Returns the key of the vote of `node` on a proposal of the node `writer`. */
  vote({ id, node: writer }: LockKey, node: string): string {
    return `${this.votes({ id, node: writer }).from}${node}`;
  }
  votes({ id, node }: LockKey): KeyRange {
    return under(`${this.votesFor(node).from}${id}/`);
  }
  /** Returns the range of all votes on the proposals of a node. */
  votesFor(writer: string): KeyRange {
    return under(this.#of(`${CLUSTER_RECORDS.vote.prefix}${writer}/`));
  }
  /**
   * The key that the leader writes after it has removed old revisions; the other nodes then remove these
   * revisions too.
   */
  get historySwept(): string {
    return this.#of('shared/history-swept');
  }
  get history(): KeyRange {
    return under(this.#of(RECORDS.history.prefix));
  }

  isReplicated(local: string): boolean {
    return !this.#local.has(local) && (local === HEAD || REPLICATED.some((prefix) => local.startsWith(prefix)));
  }

  /** The prefixes of the keys in the local store that are copies of keys in etcd (the replica). */
  get replicated(): readonly string[] {
    return REPLICATED;
  }

  inEtcd(local: string): string {
    if (ON_DEMAND.some((prefix) => local.startsWith(prefix))) return this.#of(local);
    if (this.isReplicated(local)) return this.#of(`shared/${local}`);
    throw new Error(`write to etcd: the key ${local} is local to this node`);
  }

  /** Returns the local key of a key below `PREFIX/shared/`; null for `meta` and the short-lived keys. */
  local(key: string): string | null {
    const local = key.slice(this.shared.from.length);
    return this.isReplicated(local) ? local : null;
  }

  /** Returns the name of a key below `PREFIX/`, which begins with the prefix of its kind of record. */
  nameOf(key: string): string {
    const { from } = this.shared;
    return key.startsWith(from) ? key.slice(from.length) : key.slice(this.#prefix.length + 1);
  }

  /** Returns the kind of a record that each replica contains, by its local key; null if it is unknown. */
  kindOf(local: string): RecordKind<unknown> | null {
    const of = ({ prefix }: RecordKind<unknown>) =>
      prefix.endsWith('/') ? local.startsWith(prefix) : local === prefix;
    return REPLICATED_RECORDS.find(of) ?? null;
  }

  /** Returns the id of an entry of the write lock; null for any other key. */
  lockId(key: string): string | null {
    const from = this.lockEntry('');
    return key.startsWith(from) ? key.slice(from.length) : null;
  }
}

export function chunks<T>(items: readonly T[], size: number): T[][] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, at) => items.slice(at * size, (at + 1) * size));
}

export function isBody(local: string): boolean {
  return local.startsWith('part/') || local.startsWith('parts/');
}

/** Access to the data of a cluster in etcd. */
export type ClusterData = { readonly client: EtcdClient; readonly keys: ClusterKeys };
