export type ServicePlaneOptions = {
  /** The address at which redirected connections arrive, in host order. */
  readonly listen: { readonly address: number; readonly port: number };
  /** The number of threads that accept connections. */
  readonly workers: number;
  /** `system`, or a PEM file with the authorities that must have signed server certificates. */
  readonly upstreamCa: string;
  /** The answer to a denied request. */
  readonly deniedHttp: '403' | 'reset';
  /** The mark of the plane's packets; 0: none. */
  readonly mark: number;
  /**
   * The limit of connections of one thread. Further connections are reset; in audit mode, the same number
   * again passes uninspected.
   */
  readonly maxConnections: number;
  /** The same limit for the connections of one source, in one thread. */
  readonly maxConnectionsPerSource: number;
};
