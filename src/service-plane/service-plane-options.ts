import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';

/**
 * Options of the service plane (TLS and HTTP inspection). A reload can change the members of
 * `ServicePlaneSettings`.
 */
export type ServicePlaneOptions = ServicePlaneSettings & {
  /** The address and port to which the datapath redirects connections, in host byte order. */
  readonly listen: { readonly address: number; readonly port: number };
  /** The number of threads that accept connections. */
  readonly workers: number;
  /**
   * The mark of the packets that the service plane (TLS and HTTP inspection) sends to clients (SO_MARK); 0
   * for no mark.
   */
  readonly mark: number;
  /**
   * The mark of the packets that the service plane (TLS and HTTP inspection) sends to servers; 0 for no mark.
   */
  readonly upstreamMark: number;
};
