import type { ClientDuplexStream } from '@grpc/grpc-js';
import type { EtcdServer } from './etcd-server.js';
import type { Method } from './methods.js';

/** Opens streams at the member of etcd that a client uses. */
export type Streams = {
  /** Opens a stream. Throws `unavailable` if no member of etcd can be reached. */
  open<Request, Response>(
    method: Method<Request, Response>,
  ): Promise<{ readonly member: EtcdServer; readonly stream: ClientDuplexStream<Request, Response> }>;
  /** Stops the use of a member of etcd after one of its requests or watches failed. */
  leave(member: EtcdServer): void;
  /**
   * Calls the listener when the client stops the use of a member. Returns a function that removes the
   * listener.
   */
  onLeave(listener: (member: EtcdServer) => void): () => void;
};
