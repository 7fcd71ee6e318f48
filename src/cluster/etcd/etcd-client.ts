import { setTimeout } from 'node:timers/promises';
import { create } from '@bufbuild/protobuf';
import { Metadata } from '@grpc/grpc-js';
import { BehaviorSubject, type Observable } from 'rxjs';
import { append } from '#arrays/append.js';
import { EtcdError } from './etcd-error.js';
import { type EtcdServer, serversOf } from './etcd-server.js';
import { EtcdServers } from './etcd-servers.js';
import type {
  Deadline,
  EtcdOptions,
  KeyRange,
  RangeOptions,
  RangeResult,
  Transaction,
  TransactionResult,
  WatchBatch,
} from './etcd-types.js';
import { isFaultOfMember, isLate, showsFaultOfMember } from './failure.js';
import {
  Auth,
  AuthenticateRequestSchema,
  KV,
  LeaseGrantRequestSchema,
  LeaseRevokeRequestSchema,
  Lease as LeaseService,
  RangeRequestSchema,
} from './generated/etcd_pb.js';
import { Lease } from './lease.js';
import { entryOf, rangeOf, transactionRequest, transactionResult } from './messages.js';
import { type Method, methodOf } from './methods.js';
import type { Streams } from './streams.js';
import { watchRange } from './watch.js';

const RANGE = methodOf(KV.method.range);
const TXN = methodOf(KV.method.txn);
const GRANT = methodOf(LeaseService.method.leaseGrant);
const REVOKE = methodOf(LeaseService.method.leaseRevoke);
const AUTHENTICATE = methodOf(Auth.method.authenticate);
/** The maximum number of entries in one response. A longer range is read in pages of the same revision. */
const PAGE_ENTRIES = 500n;

const READ: Deadline = { withinMs: 3_000 };
/**
 * The time in milliseconds after which a read is sent to the next member. Each further wait is twice as long,
 * because a slow disk of the leader delays a read at every member.
 */
const FIRST_READ_MS = 500;
/** The pause in milliseconds before a read is repeated, for example while etcd elects a leader. */
const READ_PAUSE_MS = 20;

/**
 * A client of one etcd cluster. It uses one member at a time. A read is repeated at the next member if a
 * member does not respond. A write is sent once: without a response, it fails with `outcome_unknown`, and the
 * caller must find out whether etcd applied it.
 */
export class EtcdClient {
  readonly #members: EtcdServers;
  readonly #user: EtcdOptions['user'];
  #token: Promise<string> | null = null;
  readonly #full = new BehaviorSubject(false);

  readonly #streams: Streams = {
    open: async (method) => {
      const deadline = Date.now() + READ.withinMs;
      const member = await this.#members.connected(deadline);
      return { member, stream: member.stream(method, await this.#metadata(member, deadline)) };
    },
    leave: (member) => this.#members.leave(member),
    onLeave: (listener) => this.#members.onLeave(listener),
  };

  constructor(options: EtcdOptions) {
    this.#members = new EtcdServers(serversOf(options));
    this.#user = options.user;
  }

  /** Emits true after etcd refused a write because its database is full, and false after it applied one. */
  get full(): Observable<boolean> {
    return this.#full;
  }

  /** The endpoint of the member that the client uses; null if it has no connection. */
  get member(): string | null {
    return this.#members.current;
  }

  /**
   * Reads a range linearizably: the result contains every write that ended before the read began. Throws
   * `compacted` if etcd removes the revision of a long range during the read.
   */
  async range(range: KeyRange, options: RangeOptions = READ): Promise<RangeResult> {
    const { withinMs, writtenSince = 0n, keysOnly = false } = options;
    const deadline = Date.now() + withinMs;
    const entries: RangeResult['entries'][number][] = [];
    let revision = 0n;
    // Continue after the bytes of the last key and not after its text, because a key may not be valid UTF-8.
    const { key: first, rangeEnd } = rangeOf(range);
    for (let from = first; ; ) {
      const request = create(RangeRequestSchema, {
        key: from,
        rangeEnd,
        limit: PAGE_ENTRIES,
        revision,
        keysOnly,
        minModRevision: writtenSince,
      });
      const { header, kvs, more } = await this.#read('read etcd', RANGE, request, deadline);
      if (revision === 0n) revision = header?.revision ?? 0n;
      append(entries, kvs.map(entryOf));
      const last = kvs.at(-1);
      if (!more || last === undefined) return { revision, entries };
      from = Uint8Array.of(...last.key, 0);
    }
  }

  /**
   * Applies a transaction. It is sent once. Throws `outcome_unknown` if it was sent, and no response came
   * within `withinMs` or before the connection to the etcd member was lost.
   */
  async transact(transaction: Transaction, { withinMs }: Deadline): Promise<TransactionResult> {
    const deadline = Date.now() + withinMs;
    const writes = [...transaction.apply, ...(transaction.otherwise ?? [])].some(({ type }) => !type.startsWith('get'));
    const request = transactionRequest(transaction);
    const result = writes
      ? await this.#authorized(deadline, (member, metadata) =>
          member.call(TXN, request, { kind: 'write', operation: 'write etcd', metadata, deadline }),
        )
      : await this.#read('read etcd', TXN, request, deadline);
    const { succeeded } = result;
    // Only a successful put proves that etcd is no longer full, because a full etcd still deletes keys.
    if (succeeded && transaction.apply.some(({ type }) => type === 'put')) this.#noteFull(false);
    return transactionResult(result);
  }

  /**
   * Emits the changes of a range, beginning with the revision `from`, or with the next change if `from` is 0.
   * The first batch has no changes, and shows that the watch has begun. Ends with an `EtcdError`: `compacted`
   * if etcd no longer has the revision, `denied` without the permission to read, otherwise `unavailable`.
   * After an error, read the range again and watch from the revision of that read.
   */
  watch(range: KeyRange, from: bigint): Observable<WatchBatch> {
    return watchRange(this.#streams, range, from);
  }

  /**
   * Grants a lease of `ttlSeconds`, and keeps it alive until it is revoked. Throws like `transact`, except
   * that a lease whose grant has an unknown outcome ends by itself.
   */
  async lease(ttlSeconds: number, within: Deadline): Promise<Lease> {
    const sentAt = performance.now();
    const id = await this.grant(ttlSeconds, within);
    return new Lease(this.#streams, id, { ttlMs: ttlSeconds * 1_000, sentAt }, (time) => this.#revoke(id, time));
  }

  /** Grants a lease like `lease`, but does not keep it alive. Returns its id. */
  async grant(ttlSeconds: number, { withinMs }: Deadline): Promise<bigint> {
    const deadline = Date.now() + withinMs;
    const operation = 'grant a lease';
    const request = create(LeaseGrantRequestSchema, { TTL: BigInt(ttlSeconds) });
    const { ID } = await this.#authorized(deadline, (member, metadata) =>
      member.call(GRANT, request, { kind: 'write', operation, metadata, deadline }),
    );
    return ID;
  }

  /** Closes all connections. Pending requests fail. */
  close(): void {
    this.#members.close();
  }

  #noteFull(isFull: boolean): void {
    if (this.#full.value !== isFull) this.#full.next(isFull);
  }

  async #revoke(ID: bigint, { withinMs }: Deadline): Promise<void> {
    const deadline = Date.now() + withinMs;
    const request = create(LeaseRevokeRequestSchema, { ID });
    await this.#authorized(deadline, (member, metadata) =>
      member.call(REVOKE, request, { kind: 'write', operation: 'revoke a lease', metadata, deadline }),
    );
  }

  async #read<Request, Response>(
    operation: string,
    method: Method<Request, Response>,
    request: Request,
    deadline: number,
  ): Promise<Response> {
    /** The member that did not respond to the last attempt in time; null if there is none. */
    let late: EtcdServer | null = null;
    for (let waitMs = FIRST_READ_MS; ; ) {
      let used: EtcdServer | null = late;
      const attempt = (member: EtcdServer, metadata: Metadata): Promise<Response> => {
        used = member;
        const until = Math.min(deadline, Date.now() + waitMs);
        return member.call(method, request, { kind: 'read', operation, metadata, deadline: until });
      };
      try {
        return await this.#authorized(deadline, attempt, late);
      } catch (failure) {
        if (!(failure instanceof EtcdError) || !isFaultOfMember(failure.code) || Date.now() >= deadline) throw failure;
        if (isLate(failure)) {
          late = used;
          waitMs *= 2;
        }
        await setTimeout(READ_PAUSE_MS);
      }
    }
  }

  /**
   * Runs a request at the member in use. If `late` is given, a member that did not respond in time, runs the
   * request at the member that follows it in the list. If etcd no longer accepts the token
   * of the user, logs in and runs the request again: etcd did not apply it.
   */
  async #authorized<Response>(
    deadline: number,
    act: (member: EtcdServer, metadata: Metadata) => Promise<Response>,
    late: EtcdServer | null = null,
  ): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const member = await (late === null ? this.#members.connected(deadline) : this.#members.after(late, deadline));
      const token = this.#token;
      try {
        return await act(member, await this.#metadata(member, deadline));
      } catch (failure) {
        if (!(failure instanceof EtcdError)) throw failure;
        if (failure.code === 'no_space') this.#noteFull(true);
        if (showsFaultOfMember(failure)) this.#members.leave(member);
        if (failure.code !== 'denied' || token === null || attempt > 1) throw failure;
        if (this.#token === token) this.#token = null;
      }
    }
  }

  /** With `hasleader`, an etcd member without a leader refuses the request at once. */
  async #metadata(member: EtcdServer, deadline: number): Promise<Metadata> {
    const metadata = new Metadata();
    metadata.set('hasleader', 'true');
    if (this.#user === null) return metadata;
    this.#token ??= this.#logIn(member, this.#user, deadline);
    try {
      metadata.set('token', await this.#token);
    } catch (failure) {
      this.#token = null;
      throw failure;
    }
    return metadata;
  }

  async #logIn(
    member: EtcdServer,
    { name, password }: NonNullable<EtcdOptions['user']>,
    deadline: number,
  ): Promise<string> {
    const request = create(AuthenticateRequestSchema, { name, password });
    const call = { kind: 'read', operation: 'log in to etcd', metadata: new Metadata(), deadline } as const;
    try {
      return (await member.call(AUTHENTICATE, request, call)).token;
    } catch (failure) {
      if (!(failure instanceof EtcdError) || failure.code !== 'timed_out') throw failure;
      throw new EtcdError('unavailable', failure.message, { cause: failure });
    }
  }
}
