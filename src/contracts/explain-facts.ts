/**
 * Whether the node can inspect. `no_ca`: it inspects everything except connections that a rule intercepts.
 */
export type PlaneState = 'inspecting' | 'no_ca' | 'absent';

/** The state of a node, beside the policy, that decides about a packet. */
export type ExplainNode = {
  /** The patterns that the destination is granted for now; null if unknown. */
  readonly granted: readonly string[] | null;
  readonly plane: PlaneState;
  readonly policesNode: boolean;
  /** The node's own addresses. */
  readonly own: readonly number[];
  /**
   * `absent`: the configuration has no `dataplane` section. `away`: the dataplane does not run at the moment.
   */
  readonly dataplane: 'running' | 'absent' | 'away';
  /**
   * Lookups sent to other servers: `none` is diverted; the DNS proxy receives them; or the DNS proxy should
   * receive them and does not run.
   */
  readonly diverts: 'none' | 'proxy' | 'absent';
  readonly reversePath: 'strict' | 'loose' | 'off';
  /** Null if unknown. */
  readonly arrival: Arrival | null;
  /** The live flow of the packet; null if there is none, or if it is unknown. */
  readonly flow: OpenFlow | null;
};

/** The interfaces where packets of a source arrive, by the routes of the node. */
export type Arrival = {
  /** Names of the policed interfaces. */
  readonly policed: readonly string[];
  /**
   * The interface by which the source is reached. `nowhere`: there is no route to it. `unknown`: the route
   * depends on more than the address.
   */
  readonly by: { readonly interface: string } | 'nowhere' | 'unknown';
};

export type OpenFlow = {
  /** Whether the packet comes from the side that did not open the flow. */
  readonly isReply: boolean;
  /** Whether the policy in force decided the flow; if not, the next packet is classified again. */
  readonly isCurrent: boolean;
  /** Null for a flow that no policy decided. */
  readonly verdict: 'allow' | 'audit' | 'redirect' | null;
  /** Null if a default decided, or if the names of that policy are no longer known. */
  readonly group: string | null;
  readonly rule: string | null;
};
