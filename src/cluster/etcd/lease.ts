import { create } from '@bufbuild/protobuf';
import type { ClientDuplexStream } from '@grpc/grpc-js';
import { type Observable, ReplaySubject } from 'rxjs';
import type { Deadline } from './etcd-types.js';
import {
  type LeaseKeepAliveRequest,
  LeaseKeepAliveRequestSchema,
  type LeaseKeepAliveResponse,
  Lease as LeaseService,
} from './generated/etcd_pb.js';
import { methodOf } from './methods.js';
import type { Streams } from './streams.js';

const KEEP_ALIVE = methodOf(LeaseService.method.leaseKeepAlive);
/** The number of renewals of a lease within its time to live. */
const RENEWALS = 4;

/**
 * A lease that is kept alive. etcd deletes the keys of a lease when the lease ends. etcd never ends a lease
 * early, and often ends it late. So this class treats the lease as ended when one time to live has elapsed
 * since it sent the last successful renewal.
 */
export class Lease {
  readonly #streams: Streams;
  readonly #ttlMs: number;
  readonly #revoke: (within: Deadline) => Promise<void>;
  readonly #ended = new ReplaySubject<string>(1);
  readonly #timer: NodeJS.Timeout;
  /** The timer that ends the lease at `#validUntil`. */
  #expiry: NodeJS.Timeout;
  #stream: ClientDuplexStream<LeaseKeepAliveRequest, LeaseKeepAliveResponse> | null = null;
  #isOpening = false;
  /** The send times of renewals without a response, in the order of sending. */
  #sent: number[] = [];
  #validUntil: number;

  constructor(
    streams: Streams,
    readonly id: bigint,
    { ttlMs, sentAt }: { readonly ttlMs: number; readonly sentAt: number },
    revoke: (within: Deadline) => Promise<void>,
  ) {
    this.#streams = streams;
    this.#ttlMs = ttlMs;
    this.#revoke = revoke;
    this.#validUntil = sentAt + ttlMs;
    this.#timer = setInterval(() => this.#renew(), ttlMs / RENEWALS);
    this.#expiry = this.#endAt(this.#validUntil);
  }

  #endAt(time: number): NodeJS.Timeout {
    return setTimeout(() => this.#stop('etcd did not renew it in time'), time - performance.now());
  }

  /** Emits the reason once, when the lease has ended or may have ended. */
  get ended(): Observable<string> {
    return this.#ended;
  }

  /** Whether the lease is certainly still valid. Does not depend on the wall clock. */
  get isValid(): boolean {
    return performance.now() < this.#validUntil;
  }

  /**
   * Ends the lease, so that etcd deletes its keys now. Without a response from etcd, the lease ends by
   * itself.
   */
  async revoke(within: Deadline): Promise<void> {
    this.#stop('revoked');
    await this.#revoke(within);
  }

  #renew(): void {
    if (this.#stream === null) this.#open();
    else {
      this.#sent.push(performance.now());
      this.#stream.write(create(LeaseKeepAliveRequestSchema, { ID: this.id }));
    }
  }

  #open(): void {
    if (this.#isOpening) return;
    this.#isOpening = true;
    this.#streams.open(KEEP_ALIVE).then(
      ({ member, stream }) => {
        this.#isOpening = false;
        if (!this.isValid) {
          stream.cancel();
          return;
        }
        const lose = (): void => {
          forget();
          stream.cancel();
          if (this.#stream === stream) this.#stream = null;
        };
        const forget = this.#streams.onLeave((left) => {
          if (left === member) lose();
        });
        this.#stream = stream;
        this.#sent = [];
        stream.on('data', ({ TTL }: LeaseKeepAliveResponse) => {
          if (this.#stream === stream) this.#renewed(TTL);
        });
        stream.on('error', lose);
        stream.on('end', lose);
        this.#renew();
      },
      () => {
        this.#isOpening = false;
      },
    );
  }

  #renewed(ttl: bigint): void {
    const sentAt = this.#sent.shift();
    if (ttl <= 0n) this.#stop('etcd does not know it any more');
    else if (!this.isValid) this.#stop('etcd did not renew it in time');
    else if (sentAt !== undefined) {
      this.#validUntil = sentAt + this.#ttlMs;
      clearTimeout(this.#expiry);
      this.#expiry = this.#endAt(this.#validUntil);
    }
  }

  #stop(reason: string): void {
    clearInterval(this.#timer);
    clearTimeout(this.#expiry);
    this.#validUntil = Number.NEGATIVE_INFINITY;
    this.#stream?.cancel();
    this.#stream = null;
    this.#ended.next(reason);
    this.#ended.complete();
  }
}
