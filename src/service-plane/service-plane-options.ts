export type ServicePlaneOptions = {
  /** The address and port to which the datapath redirects connections, in host byte order. */
  readonly listen: { readonly address: number; readonly port: number };
  /** The number of threads that accept connections. */
  readonly workers: number;
  /** The trusted CA certificates for servers: `system`, or the path of a PEM file. */
  readonly upstreamCa: string;
  /** The reaction to a denied HTTP request: a response with status 403, or a TCP reset. */
  readonly deniedHttp: '403' | 'reset';
  /** The mark of all packets that the service plane sends (SO_MARK); 0 for no mark. */
  readonly mark: number;
  /**
   * The maximum number of inspected connections of one thread. The service plane resets further connections.
   * In audit mode, the same number of further connections passes uninspected.
   */
  readonly maxConnections: number;
  /**
   * The maximum number of inspected connections of one source address in one thread. The service plane
   * handles further connections as for `maxConnections`.
   */
  readonly maxConnectionsPerSource: number;
};
