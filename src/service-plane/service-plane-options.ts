export type ServicePlaneOptions = {
  /** Where redirected connections arrive; the address in host order. */
  readonly listen: { readonly address: number; readonly port: number };
  /** Threads that take connections. */
  readonly workers: number;
  /** `system`, or a PEM file of the authorities that servers must be signed by. */
  readonly upstreamCa: string;
  /** What a denied request gets. */
  readonly deniedHttp: '403' | 'reset';
  /** Of its packets; 0: none. */
  readonly mark: number;
  /** Connections of one thread at once; what is more is reset, or passes unread under audit until it is as many again. */
  readonly maxConnections: number;
  /** The same for the connections of one source, in one thread. */
  readonly maxConnectionsPerSource: number;
};
