import type { Socket } from 'node:net';
import { create } from '@bufbuild/protobuf';
import {
  type ChannelCredentials,
  Client,
  type ClientDuplexStream,
  type ClientUnaryCall,
  credentials,
  Metadata,
} from '@grpc/grpc-js';
import { reasonOf } from '#files/system-failure.js';
import { EtcdError } from './etcd-error.js';
import type { EtcdOptions } from './etcd-types.js';
import { etcdErrorOf, type RequestKind } from './failure.js';
import { KV, RangeRequestSchema } from './generated/etcd_pb.js';
import { type Method, methodOf } from './methods.js';

/**
 * Options of gRPC: no retries, no proxy, a separate connection for each channel, no limit for the size of
 * messages.
 */
const CHANNEL_OPTIONS = {
  'grpc.enable_retries': 0,
  'grpc.enable_http_proxy': 0,
  'grpc.use_local_subchannel_pool': 1,
  'grpc.max_receive_message_length': -1,
  'grpc.max_send_message_length': -1,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.min_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 2_000,
};

export type Call = {
  readonly kind: RequestKind;
  /** The name of the operation, for error messages. */
  readonly operation: string;
  readonly metadata: Metadata;
  /** The time at which the call fails, as `Date.now()`. */
  readonly deadline: number;
};

/**
 * A member of etcd. Requests and watches have a connection each, because a response of several MiB delays a
 * watch on the same connection.
 */
export class EtcdServer {
  readonly #requests: Client;
  readonly #streams: Client;
  /** The pending requests, with the times at which they were sent. */
  readonly #pending = new Map<ClientUnaryCall, number>();
  /** The sockets whose TLS handshake is not complete. */
  readonly #handshakes = new Set<Socket>();
  #isClosed = false;

  constructor(
    readonly endpoint: string,
    channelCredentials: ChannelCredentials,
  ) {
    const { host } = new URL(endpoint);
    this.#followHandshakes(channelCredentials);
    this.#requests = new Client(host, channelCredentials, CHANNEL_OPTIONS);
    this.#streams = new Client(host, channelCredentials, CHANNEL_OPTIONS);
  }

  /** Connects if there is no connection. Rejects at the deadline. No request is sent. */
  connected(deadline: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#requests.waitForReady(deadline, (failure) => (failure === undefined ? resolve() : reject(failure)));
    });
  }

  /**
   * Returns the reason why there is no connection. Sends a read to find out, because gRPC reports the reason
   * only for a request.
   */
  async fault(deadline: number): Promise<string> {
    const call = { kind: 'read', operation: 'connect', metadata: new Metadata(), deadline } as const;
    const late = `connect at ${this.endpoint}: connected too late`;
    try {
      await this.call(methodOf(KV.method.range), create(RangeRequestSchema, { key: Uint8Array.of(0) }), call);
      return late;
    } catch (failure) {
      return failure instanceof EtcdError && failure.code === 'denied' ? late : reasonOf(failure);
    }
  }

  call<Request, Response>(method: Method<Request, Response>, request: Request, call: Call): Promise<Response> {
    const { kind, operation, metadata, deadline } = call;
    return new Promise((resolve, reject) => {
      const done = this.#requests.makeUnaryRequest(
        method.path,
        method.encode,
        method.decode,
        request,
        metadata,
        { deadline },
        (failure, response) => {
          this.#pending.delete(done);
          if (failure !== null) reject(etcdErrorOf(failure, `${operation} at ${this.endpoint}`, kind));
          else if (response === undefined)
            reject(new EtcdError(kind === 'write' ? 'outcome_unknown' : 'timed_out', `${operation}: no response`));
          else resolve(response);
        },
      );
      this.#pending.set(done, performance.now());
    });
  }

  stream<Request, Response>(
    method: Method<Request, Response>,
    metadata: Metadata,
  ): ClientDuplexStream<Request, Response> {
    const stream = this.#streams.makeBidiStreamRequest(method.path, method.encode, method.decode, metadata);
    const cancel = stream.cancel.bind(stream);
    stream.cancel = () => cancelSoon({ cancel });
    // A canceled stream emits an error. Add a listener, because the error would end the process if the caller
    // cancels the stream before it adds its own listener.
    return stream.on('error', () => {});
  }

  /** Ends the pending requests that were sent before a time. The outcome of pending writes is unknown. */
  abandon(sentBefore = Number.POSITIVE_INFINITY): void {
    for (const [call, sentAt] of this.#pending) if (sentAt < sentBefore) cancelSoon(call);
  }

  close(): void {
    this.abandon();
    this.#requests.close();
    this.#streams.close();
    this.#isClosed = true;
    for (const socket of this.#handshakes) socket.destroy();
  }

  /**
   * Makes the sockets of TLS handshakes known to `close`. grpc-js 1.14 leaves such a socket open when its
   * channel is closed. A member that accepts a connection and never responds would keep the process open.
   */
  #followHandshakes(channelCredentials: ChannelCredentials): void {
    const createConnector = channelCredentials._createSecureConnector.bind(channelCredentials);
    channelCredentials._createSecureConnector = (...options) => {
      const connector = createConnector(...options);
      const connect = connector.connect.bind(connector);
      connector.connect = (socket) => {
        this.#handshakes.add(socket);
        if (this.#isClosed) socket.destroy();
        return connect(socket).finally(() => this.#handshakes.delete(socket));
      };
      return connector;
    };
  }
}

/**
 * Cancels a call after the pending microtasks. grpc-js 1.14 starts the request of a call in a microtask, even
 * if the call was canceled before. Such a request never ends, and keeps its connection and the process open.
 */
function cancelSoon(call: { cancel(): void }): void {
  setImmediate(() => call.cancel());
}

export function serversOf({ endpoints, tls }: EtcdOptions): readonly EtcdServer[] {
  const channelCredentials = () =>
    tls === null ? credentials.createInsecure() : credentials.createSsl(tls.ca, tls.key, tls.cert);
  return endpoints.map((endpoint) => new EtcdServer(endpoint, channelCredentials()));
}
