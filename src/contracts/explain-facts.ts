/**
 * Whether the service plane of the node can inspect connections. `no_ca`: it cannot inspect connections that
 * a rule intercepts, because the intercept CA is missing.
 */
export type PlaneState = 'inspecting' | 'no_ca' | 'absent';

/** The state of a node that, in addition to the policy, affects the decision about a packet. */
export type ExplainNode = {
  /** The patterns for which the destination has a grant now; null if the grants are unknown. */
  readonly granted: readonly string[] | null;
  readonly plane: PlaneState;
  readonly policesNode: boolean;
  /** The IPv4 addresses of the node itself. */
  readonly own: readonly number[];
  /**
   * `absent`: the configuration has no `dataplane` section. `away`: the dataplane is configured but does not
   * run now.
   */
  readonly dataplane: 'running' | 'absent' | 'away';
  /**
   * Where DNS lookups for other servers go. `none`: to those servers. `proxy`: to the DNS proxy. `absent`:
   * redirection to the DNS proxy is configured, but the proxy does not run.
   */
  readonly diverts: 'none' | 'proxy' | 'absent';
  readonly reversePath: 'strict' | 'loose' | 'off';
  /** The interfaces on which packets from the source arrive; null if they are unknown. */
  readonly arrival: Arrival | null;
  /** The live flow of the packet; null if the packet has no flow, or if its flow is unknown. */
  readonly flow: OpenFlow | null;
};

/** The interfaces on which packets from a source arrive, according to the routes of the node. */
export type Arrival = {
  /** Names of the policed interfaces on the node. */
  readonly policed: readonly string[];
  /**
   * The interface through which the route to the source leads. `nowhere`: the node has no route to the
   * source. `unknown`: the route depends on more than the source address.
   */
  readonly by: { readonly interface: string } | 'nowhere' | 'unknown';
};

export type OpenFlow = {
  /** Whether the packet is a reply: sent by the endpoint that did not open the flow. */
  readonly isReply: boolean;
  /**
   * Whether the policy in force decided the flow. If not, the datapath classifies the next packet of the flow
   * again.
   */
  readonly isCurrent: boolean;
  /** The verdict for the flow; null if no policy decided the flow. */
  readonly verdict: 'allow' | 'audit' | 'redirect' | null;
  /**
   * The id of the group that decided the flow. Null if a default of the policy decided, or if the rule names
   * of the policy were discarded.
   */
  readonly group: string | null;
  readonly rule: string | null;
};
