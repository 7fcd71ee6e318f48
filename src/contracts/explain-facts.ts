/** Whether the node can inspect: `no_ca`, all but what a rule intercepts. */
export type PlaneState = 'inspecting' | 'no_ca' | 'absent';

/** State of a node that decides beside the policy. */
export type ExplainNode = {
  /** Patterns that the destination is granted for now; null where that is not known. */
  readonly granted: readonly string[] | null;
  readonly plane: PlaneState;
  readonly policesNode: boolean;
  /** The node's own addresses. */
  readonly own: readonly number[];
  /** `absent`: without a `dataplane` section. `away`: it does not run at the moment. */
  readonly dataplane: 'running' | 'absent' | 'away';
  /** Lookups of other servers: `none` is diverted, the DNS proxy gets them, or it should get them and is absent. */
  readonly diverts: 'none' | 'proxy' | 'absent';
  readonly reversePath: 'strict' | 'loose' | 'off';
  /** Null where it is not known. */
  readonly arrival: Arrival | null;
  /** The live flow that the packet is of; null where there is none, or it is not known. */
  readonly flow: OpenFlow | null;
};

/** Where packets of a source come in, by the routes of the node. */
export type Arrival = {
  /** Names of the interfaces that are policed. */
  readonly policed: readonly string[];
  /** The interface by which the source is reached. `nowhere`: no route leads there. `unknown`: more than its address decides. */
  readonly by: { readonly interface: string } | 'nowhere' | 'unknown';
};

export type OpenFlow = {
  /** Whether the packet is of the side that was asked. */
  readonly isReply: boolean;
  /** Whether the policy in force judged it; else its next packet is judged again. */
  readonly isCurrent: boolean;
  /** Null of a flow that nobody judged. */
  readonly verdict: 'allow' | 'audit' | 'redirect' | null;
  /** Null where a default decided, or the policy that did is gone. */
  readonly group: string | null;
  readonly rule: string | null;
};
