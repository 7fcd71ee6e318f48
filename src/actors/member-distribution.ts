import { audit, filter, map, type Observable, Subject, timer } from 'rxjs';
import type { MembersChanged } from '#contracts/datapath.js';
import type { MembersMessage, OwnerName, StoredObject } from '#contracts/kubernetes-source.js';
import {
  type ListedMembership,
  type MemberList,
  type MembershipChange,
  NO_SELECTORS,
  type SelectorScope,
} from '#contracts/membership.js';
import type { MemberRecord } from '#policy/model/member-record.js';
import { isSameScope } from '#policy/model/source-scope.js';
import { backoffMs } from '#statecharts/failure.js';
import { MemberFollower, type MemberTaker } from './member-follower.js';

/** Changes within this time are compiled together. A change that comes alone waits no longer. */
const COALESCE_MS = 20;
/** The least time between two compilations for members, so that other writes and requests go on. */
const BETWEEN_MS = 200;
const MOST_WAIT_MS = 30_000;

export type DistributionPorts = {
  readonly record: MemberRecord;
  readonly datapath: MemberTaker<MembersChanged> | null;
  readonly dns: MemberTaker<unknown> | null;
  readonly servicePlane: MemberTaker<unknown> | null;
  readonly store: (objects: readonly StoredObject[]) => Promise<void>;
  readonly trouble: (message: string, failure: unknown) => void;
};

/**
 * Gives the members of the Kubernetes thread to all parts that decide by them: datapath, DNS proxy and
 * service plane. A change reaches all of them before the next change reaches one, so that a removal is in
 * force everywhere before a later addition is in force anywhere.
 */
export class MemberDistribution {
  readonly #ports: DistributionPorts;
  readonly #datapath: MemberFollower<MembersChanged> | null;
  readonly #followers: readonly MemberFollower<unknown>[];
  readonly #owners = new Map<number, OwnerName>();
  readonly #changed = new Subject<void>();
  #scope: SelectorScope = NO_SELECTORS;
  /** The scope of the policy in force; null while no policy with selectors is in force. */
  #scopeInForce: SelectorScope | null = null;
  /** The number of addresses that are closed until a compilation. */
  #uncompiled = 0;
  /** The number of compilations after which the policy is still outdated. */
  #compilations = 0;
  #flippedAt = Number.NEGATIVE_INFINITY;
  #counts: Pick<MembersChanged, 'members' | 'refused'> | null = null;

  constructor(ports: DistributionPorts) {
    this.#ports = ports;
    const follower = <R>(taker: MemberTaker<R> | null) =>
      taker === null ? null : new MemberFollower(taker, ports.record, ports.trouble);
    this.#datapath = follower(ports.datapath);
    this.#followers = [this.#datapath, follower(ports.dns), follower(ports.servicePlane)].filter((of) => of !== null);
  }

  /** Emits when the policy in force must be compiled again for its members. */
  readonly outdated: Observable<void> = this.#changed.pipe(
    audit(() => timer(this.#waitMs())),
    filter(() => this.#isOutdated()),
    map(() => {
      this.#compilations++;
    }),
  );

  /** Takes a message of the Kubernetes thread. Resolves when all parts decide by it, and the store has it. */
  async take({ replaces, changes, owners, scope, stored }: MembersMessage): Promise<void> {
    const storing = this.#ports.store(stored).catch((failure: unknown) => {
      this.#ports.trouble('the members of selectors cannot be stored', failure);
    });
    if (replaces !== null) {
      this.#owners.clear();
      await this.#replace(replaces);
    }
    for (const change of changes) await this.#change(change);
    for (const { address, owner } of owners) {
      if (owner === null) this.#owners.delete(address);
      else this.#owners.set(address, owner);
    }
    if (scope !== undefined) {
      this.#scope = scope;
      this.#changed.next();
    }
    await storing;
  }

  /** Gives all members to a datapath that was opened. Its BPF programs keep former members until then. */
  async datapathOpened(): Promise<void> {
    await this.#datapath?.replace();
  }

  /** `uncompiled`: the number of addresses that the program in force has no rules for. */
  flipped(uncompiled: number): void {
    this.#uncompiled = uncompiled;
    this.#flippedAt = performance.now();
    if (uncompiled === 0) this.#compilations = 0;
    else this.#changed.next();
  }

  /** `scope`: the scope with which the policy in force was compiled; null if the policy has no selectors. */
  activated(scope: SelectorScope | null): void {
    this.#scopeInForce = scope;
    if (this.#isOutdated()) this.#changed.next();
  }

  ownerOf(address: number): OwnerName | null {
    return this.#owners.get(address) ?? null;
  }

  /** Returns the membership with all members. */
  listed(): ListedMembership {
    return { scope: this.#scope, list: this.#ports.record.list() };
  }

  /** Returns the membership with the set of one address as its only member. */
  listedFor(address: number, scope = this.#scope): ListedMembership {
    const set = this.#ports.record.setOf(address);
    const [addresses, sets] = set === undefined ? [[], []] : [[address], [set.number]];
    const list = { added: set === undefined ? [] : [set], dropped: [] };
    return { scope, list: { ...list, addresses: Uint32Array.from(addresses), sets: Uint32Array.from(sets) } };
  }

  /**
   * The number of addresses in the datapath, and of those that are closed because a table is full; null
   * before the first change.
   */
  get counts(): Pick<MembersChanged, 'members' | 'refused'> | null {
    return this.#counts;
  }

  close(): void {
    for (const follower of this.#followers) follower.close();
  }

  async #replace(list: MemberList): Promise<void> {
    this.#ports.record.replace(list);
    this.#note(await Promise.all(this.#followers.map((follower) => follower.replace())));
  }

  async #change(change: MembershipChange): Promise<void> {
    this.#ports.record.change(change);
    this.#note(await Promise.all(this.#followers.map((follower) => follower.change(change))));
  }

  #note([first]: readonly unknown[]): void {
    const changed = this.#datapath === null ? undefined : (first as MembersChanged | undefined);
    if (changed === undefined) return;
    const { members, refused, uncompiled } = changed;
    this.#counts = { members, refused };
    this.#uncompiled += uncompiled;
    if (uncompiled > 0) this.#changed.next();
  }

  #waitMs(): number {
    if (this.#compilations > 0) return backoffMs(this.#compilations, BETWEEN_MS, MOST_WAIT_MS);
    return Math.max(COALESCE_MS, this.#flippedAt + BETWEEN_MS - performance.now());
  }

  #isOutdated(): boolean {
    if (this.#scopeInForce === null) return false;
    return this.#uncompiled > 0 || !isSameScope(this.#scopeInForce, this.#scope);
  }
}
