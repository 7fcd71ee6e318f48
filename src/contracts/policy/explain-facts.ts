import type { DestinationTranslation } from '#contracts/datapath/translation.js';
import type { Address, Verdict } from './policy-model.js';

/**
 * The state of the service plane. `inspecting`: it can inspect connections. `no_ca`: it can inspect only
 * connections that no rule intercepts, because the intercept CA is missing. `absent`: it does not run.
 */
export type PlaneState = 'inspecting' | 'no_ca' | 'absent';

/** The state of a node that, in addition to the policy, affects the decision about a packet. */
export type ExplainNode = {
  /** The patterns for which the destination has a grant now; null if the grants are unknown. */
  readonly granted: readonly string[] | null;
  readonly plane: PlaneState;
  readonly policesNode: boolean;
  /** The addresses of this node. */
  readonly own: readonly Address[];
  /** The setting `dataplane.ipv6`: `enforce` if the policy decides IPv6 packets. */
  readonly ipv6: 'drop' | 'pass' | 'enforce';
  /**
   * `absent`: the configuration has no `dataplane` section. `away`: it has this section, but the dataplane
   * does not run now.
   */
  readonly dataplane: 'running' | 'absent' | 'away';
  /**
   * The destination of DNS lookups that clients send to other DNS servers. `none`: those servers. `proxy`:
   * the DNS proxy, because redirection is configured. `absent`: redirection is configured, but the DNS proxy
   * does not run.
   */
  readonly diverts: 'none' | 'proxy' | 'absent';
  readonly reversePath: 'strict' | 'loose' | 'off';
  /** The interface on which packets from the source arrive; null if it could not be determined. */
  readonly arrival: Arrival | null;
  /**
   * The live flow to which the packet belongs; null if there is none, or if the flows cannot be read now.
   */
  readonly flow: OpenFlow | null;
  /**
   * The translation of the destination; null if the node translates no addresses, or no datapath is open.
   */
  readonly translation: DestinationTranslation | null;
};

/**
 * Why the DNS proxy answers a lookup itself, before the policy. `canary_name`: `dns.canary_names` contains
 * the name, and the answer is NXDOMAIN. `resolver_arpa`: the answer has no records.
 */
export type UnforwardedReason = 'canary_name' | 'resolver_arpa';

/** The interface on which packets from a source arrive, according to the routes of the node. */
export type Arrival = {
  /** Names of the interfaces of the node that Weir polices. */
  readonly policed: readonly string[];
  /**
   * The interface through which the route to the source leads. `nowhere`: the node has no route to the
   * source, or the source is an address of the node. `unknown`: the route depends on more than the source
   * address.
   */
  readonly by: { readonly interface: string } | 'nowhere' | 'unknown';
};

export type OpenFlow = {
  /** Whether the endpoint that did not open the flow sent the packet. */
  readonly isReply: boolean;
  /**
   * Whether the policy in force has decided the flow, so that its packets pass without a new decision.
   * Otherwise the datapath classifies the next packet of the flow again.
   */
  readonly isCurrent: boolean;
  /** Whether a later policy denies the flow. The datapath keeps such a flow, but drops its packets. */
  readonly isSuspended: boolean;
  /** The verdict for the flow; null if no policy decided the flow. */
  readonly verdict: Verdict | null;
  /**
   * The id of the group that decided the flow. Null if a default of the policy decided it, or if the node no
   * longer has the rule names of the policy.
   */
  readonly group: string | null;
  readonly rule: string | null;
};
