import type { Socket } from 'node:net';
import type { FastifyBaseLogger } from 'fastify';
import type { Listener } from './api.js';
import type { ConsoleFiles } from './console/console-files.js';

/** `DEFAULT_LIMITS` has the values of a node (D2, D37); tests set smaller limits. */
export type ApiLimits = {
  readonly bodyBytes: number;
  readonly policyBodyBytes: number;
  /** The total size in bytes of the policy bodies that may be received or processed at the same time. */
  readonly policyBytesInFlight: number;
  readonly requestTimeoutMs: number;
  readonly policyRequestTimeoutMs: number;
  /**
   * For how many milliseconds the server reads the rest of a request body after a response that it sent
   * before the body was complete. After this time the server closes the connection.
   */
  readonly lingerMs: number;
  readonly headersTimeoutMs: number;
  readonly connectionsCheckingIntervalMs: number;
  readonly keepAliveTimeoutMs: number;
  readonly headerCount: number;
  readonly headerBytes: number;
  readonly connections: number;
  readonly requestsPerSocket: number;
  /**
   * The limit of requests from one client address in `requestWindowMs`. Requests to public routes, such as
   * `/health` and `/metrics`, are counted only at the metrics listener, where all routes are public. The
   * metrics listener does not count requests of the node itself.
   */
  readonly requestsPerWindow: number;
  readonly requestWindowMs: number;
  /** The maximum number of invalid tokens from one client address within `failedLoginWindowMs`. */
  readonly failedLoginsPerWindow: number;
  readonly failedLoginWindowMs: number;
};

export const DEFAULT_LIMITS: ApiLimits = {
  bodyBytes: 1024 * 1024,
  policyBodyBytes: 64 * 1024 * 1024,
  policyBytesInFlight: 256 * 1024 * 1024,
  requestTimeoutMs: 15_000,
  policyRequestTimeoutMs: 120_000,
  lingerMs: 5_000,
  headersTimeoutMs: 10_000,
  connectionsCheckingIntervalMs: 5_000,
  keepAliveTimeoutMs: 5_000,
  headerCount: 100,
  headerBytes: 16 * 1024,
  connections: 1_000,
  requestsPerSocket: 1_000,
  requestsPerWindow: 500,
  requestWindowMs: 1_000,
  failedLoginsPerWindow: 10,
  failedLoginWindowMs: 60_000,
};

/** The settings that can change while the server runs. The server reads them at each use. */
export type ApiSettings = {
  /**
   * Accepted values of the `Host` header: host names and addresses of this node, without a port. Loopback
   * names and addresses are always accepted.
   */
  readonly hosts: readonly string[];
} & Pick<ApiLimits, 'requestsPerWindow' | 'failedLoginsPerWindow' | 'requestTimeoutMs'>;

export type ApiOptions = {
  readonly version: string;
  /** The accepted values of the `Host` header, see `ApiSettings`. */
  readonly hosts?: readonly string[];
  /** Returns the present settings. By default, `hosts` and `limits` do not change. */
  readonly settings?: () => ApiSettings;
  readonly logger?: FastifyBaseLogger;
  readonly tls?: {
    readonly cert: string | Buffer;
    readonly key: string | Buffer;
    readonly ca?: string | Buffer | null;
  };
  /**
   * The kind of listener; by default, the management API. The server has the routes whose `access` contains
   * this listener. The clients of `peers` are other nodes of the cluster, which prove their identity with
   * certificates. `metrics` accepts any `Host` header.
   */
  readonly listener?: Listener;
  readonly limits?: Partial<ApiLimits>;
  /** The files of the console, which the management API serves at `/console/`; null or absent: no console. */
  readonly console?: ConsoleFiles | null;
  /**
   * Returns whether the server must close this new connection immediately. By default the server accepts
   * every connection up to `connections`.
   */
  readonly refuses?: (connection: Socket) => boolean;
};
