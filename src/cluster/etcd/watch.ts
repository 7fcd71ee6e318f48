import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { type ClientDuplexStream, type ServiceError, status } from '@grpc/grpc-js';
import { Observable, type Subscriber } from 'rxjs';
import { append } from '#arrays/append.js';
import { EtcdError } from './etcd-error.js';
import type { EtcdServer } from './etcd-server.js';
import type { KeyChange, KeyRange, WatchBatch } from './etcd-types.js';
import { Watch, type WatchRequest, WatchRequestSchema, type WatchResponse } from './generated/etcd_pb.js';
import { changeOf, rangeOf } from './messages.js';
import { methodOf } from './methods.js';
import type { Streams } from './streams.js';

const WATCH = methodOf(Watch.method.watch);
/**
 * A watch sends a progress request (heartbeat) to its member every `BEAT_MS` milliseconds. After
 * `MISSED_BEATS` requests without a response, the client stops the use of the member.
 */
const BEAT_MS = 400;
const MISSED_BEATS = 2;
/**
 * During an election, etcd can lose requests, and reports this only after seven seconds. So at these times in
 * milliseconds after an election, the client ends the requests that are older than `ELECTION_GRACE_MS`.
 */
const ELECTION_CHECKS_MS = [200, 500, 800, 1_100];
const ELECTION_GRACE_MS = 200;

const requestOf = (request: MessageInitShape<typeof WatchRequestSchema>['requestUnion']): WatchRequest =>
  create(WatchRequestSchema, request === undefined ? {} : { requestUnion: request });

/**
 * Watches a range from a revision on. The watch fails if the member is silent, has no leader or ends the
 * stream. The member must respond to progress requests, because a failed watch otherwise looks like a watch
 * without changes.
 *
 * The first batch contains no changes, and shows that the watch has begun. A watch from revision 0 emits all
 * changes after the first batch.
 */
export function watchRange(streams: Streams, range: KeyRange, from: bigint): Observable<WatchBatch> {
  return new Observable((subscriber) => {
    let end = (): void => {};
    streams.open(WATCH).then(
      ({ member, stream }) => {
        if (subscriber.closed) stream.cancel();
        else end = follow({ streams, member, stream }, range, from, subscriber);
      },
      (failure: unknown) => subscriber.error(failure),
    );
    return () => end();
  });
}

type Opened = {
  readonly streams: Streams;
  readonly member: EtcdServer;
  readonly stream: ClientDuplexStream<WatchRequest, WatchResponse>;
};

/** Reads the events of an open watch stream until it fails. Returns a function that ends it. */
function follow(opened: Opened, range: KeyRange, from: bigint, subscriber: Subscriber<WatchBatch>): () => void {
  const { streams, member, stream } = opened;
  let unanswered = 0;
  let changes: KeyChange[] = [];
  let term = 0n;

  const fail = (error: EtcdError): void => {
    if (subscriber.closed) return;
    forget();
    if (error.code === 'unavailable') streams.leave(member);
    subscriber.error(error);
  };
  const beat = setInterval(() => {
    if (unanswered >= MISSED_BEATS) {
      fail(
        new EtcdError('unavailable', `watch etcd: ${member.endpoint} did not respond for ${BEAT_MS * MISSED_BEATS} ms`),
      );
      return;
    }
    unanswered += 1;
    stream.write(requestOf({ case: 'progressRequest', value: {} }));
  }, BEAT_MS);
  const forget = streams.onLeave((left) => {
    if (left === member)
      subscriber.error(
        new EtcdError('unavailable', `watch etcd: the client stopped using ${member.endpoint} after a fault`),
      );
  });

  stream.on('data', (response: WatchResponse) => {
    unanswered = 0;
    const { revision = 0n, raftTerm = 0n } = response.header ?? {};
    if (term !== 0n && raftTerm > term) {
      for (const delay of ELECTION_CHECKS_MS)
        setTimeout(() => member.abandon(performance.now() - ELECTION_GRACE_MS), delay);
    }
    term = raftTerm;
    if (response.canceled) {
      fail(endOf(response, `watch etcd at ${member.endpoint}`, from));
      return;
    }
    append(changes, response.events.map(changeOf));
    if (response.fragment || (changes.length === 0 && !response.created)) return;
    const batch = { revision, changes };
    changes = [];
    subscriber.next(batch);
  });
  stream.on('error', (failure: ServiceError) => {
    const denied = failure.code === status.UNAUTHENTICATED || failure.code === status.PERMISSION_DENIED;
    const message = `watch etcd at ${member.endpoint}: ${failure.details}`;
    fail(new EtcdError(denied ? 'denied' : 'unavailable', message, { cause: failure }));
  });
  stream.on('end', () => fail(new EtcdError('unavailable', `watch etcd: ${member.endpoint} ended the watch`)));
  stream.write(requestOf({ case: 'createRequest', value: { ...rangeOf(range), startRevision: from, fragment: true } }));

  return () => {
    clearInterval(beat);
    forget();
    stream.cancel();
  };
}

/** Returns the error for a watch that its member canceled. */
function endOf({ compactRevision, cancelReason }: WatchResponse, operation: string, from: bigint): EtcdError {
  if (compactRevision > 0n) {
    const message = `${operation}: revision ${from} was compacted; ${compactRevision} is the oldest revision`;
    return new EtcdError('compacted', message);
  }
  const code = cancelReason.includes('permission denied') ? 'denied' : 'unavailable';
  return new EtcdError(code, `${operation}: ${cancelReason}`);
}
