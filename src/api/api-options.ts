import type { Socket } from 'node:net';
import type { FastifyBaseLogger } from 'fastify';

/** Limits of the HTTP server (D2, D37). Every one has a default; tests set shorter ones. */
export type ApiLimits = {
  readonly bodyBytes: number;
  readonly policyBodyBytes: number;
  /** Policy bodies that may be on their way or being judged at once, together. */
  readonly policyBytesInFlight: number;
  readonly requestTimeoutMs: number;
  readonly policyRequestTimeoutMs: number;
  /** How long the rest of a body is taken after its request was answered. */
  readonly lingerMs: number;
  readonly headersTimeoutMs: number;
  readonly connectionsCheckingIntervalMs: number;
  readonly keepAliveTimeoutMs: number;
  readonly headerCount: number;
  readonly headerBytes: number;
  readonly connections: number;
  readonly requestsPerSocket: number;
  /** Requests of one address in a window; `/health`, `/ready` and `/metrics` are not counted. */
  readonly requestsPerWindow: number;
  readonly requestWindowMs: number;
  /** Tokens of one address that were not valid, in a window. */
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

export type ApiOptions = {
  readonly version: string;
  /** Host names and addresses, without a port, that this node goes by; localhost and 127.0.0.1 always count. */
  readonly hosts?: readonly string[];
  readonly logger?: FastifyBaseLogger;
  readonly tls?: { readonly cert: string | Buffer; readonly key: string | Buffer };
  readonly limits?: Partial<ApiLimits>;
  /** Whether a new connection is closed at once; left out: none is. */
  readonly refuses?: (connection: Socket) => boolean;
};
