/** Counters of all threads of the TLS and HTTP inspection (service plane) since it was opened. */
export type ServicePlaneStats = {
  /**
   * The number of allowed connections that the service plane decided without inspecting their HTTP requests.
   */
  readonly allow: number;
  readonly deny: number;
  readonly audit: number;
  readonly intercepted: number;
  /** The number of allowed requests in intercepted connections. */
  readonly requestsAllow: number;
  readonly requestsDeny: number;
  readonly requestsAudit: number;
  /** The number of denied responses: responses that violated the rule that allowed their request. */
  readonly responsesDeny: number;
  readonly responsesAudit: number;
  /** The number of connections that are open now. */
  readonly connections: number;
  /**
   * The number of spliced connections that a later policy denies, and that transfer no data now (suspended).
   */
  readonly suspended: number;
  /** The number of connections and requests that were not served, by reason. */
  readonly refused: Readonly<Record<string, number>>;
  /**
   * Why the trusted CA certificates for servers (`upstream_ca`) cannot be read; null: no fault. During a
   * fault, the certificates that were read last stay in use.
   */
  readonly upstreamCaFault: string | null;
  /**
   * Why the service plane (TLS and HTTP inspection) cannot offload connections to the datapath; null: no
   * fault. During a fault, the node forwards the bytes of these connections through its sockets.
   */
  readonly spliceFault: string | null;
};
