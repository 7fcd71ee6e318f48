import type { OwnerName } from '#contracts/kubernetes/address-owner.js';

/**
 * The types of findings (D31). `config_change` is a successful write to the management API. `gap` reports
 * events that were lost before they became findings, or changes that were dropped for a sink (file or webhook
 * for findings). `cluster_contradiction`: etcd lacked data that this node had applied, so that the node
 * applied and wrote nothing. `address_shared`: different objects of two integrations own an address.
 * `value_unreadable`: a value of etcd does not match its schema. The node ignores such a value.
 */
export const FINDING_TYPES = [
  'l4_deny',
  'icmp_deny',
  'dns_deny',
  'tls_deny',
  'http_deny',
  'auth_denied',
  'config_change',
  'gap',
  'cluster_contradiction',
  'address_shared',
  'value_unreadable',
] as const;
const UNLISTED: readonly FindingType[] = ['config_change', 'gap', 'cluster_contradiction', 'value_unreadable'];
/**
 * The finding types that a list contains if the query names no types: denied traffic, refused API requests,
 * and shared addresses.
 */
export const LISTED_TYPES = FINDING_TYPES.filter((type) => !UNLISTED.includes(type));
export type FindingType = (typeof FINDING_TYPES)[number];

/**
 * The fields that identify a finding: events with equal fields are merged into one finding. A field that does
 * not apply is null.
 */
export type FindingIdentity = {
  readonly type: FindingType;
  readonly policyId: string | null;
  readonly sourceGroup: string | null;
  readonly rule: string | null;
  /** Null if no policy was evaluated, or if the policy that decided is no longer known. */
  readonly decidedBy: 'rule' | 'group_default' | 'policy_default' | null;
  /** The source address as text. */
  readonly source: string | null;
  readonly destination: string | null;
  /**
   * The Kubernetes objects that owned the addresses at the time of the event. Findings that an older build
   * stored lack these fields.
   */
  readonly sourceOwner?: OwnerName | null;
  readonly destinationOwner?: OwnerName | null;
  readonly destinationPort: number | null;
  /**
   * The destination before DNAT, if this node translated the address; `destination` is then the address after
   * DNAT. Findings that an older build stored lack this field.
   */
  readonly wireDestination?: WireDestination | null;
  readonly protocol: number | null;
  readonly hostname: string | null;
  readonly sni: string | null;
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
  readonly icmpType: number | null;
  readonly icmpCode: number | null;
  readonly dropReason: string | null;
  /**
   * Why the service plane (TLS and HTTP inspection) denied a connection or request, or why the DNS rebinding
   * protection removed an address. In a `cluster_contradiction`: the kind of the contradiction, such as
   * `older`. In a `value_unreadable`: how the value differs from its schema. Null in all other findings.
   * Findings that an older build stored lack this field.
   */
  readonly reason: string | null;
  readonly effectiveAction: 'allow' | 'deny';
  /** The subject of the API token with which the request was made. */
  readonly actor: string | null;
  /** The operation id of the API request. */
  readonly operation: string | null;
  /**
   * The path of the API request. In a `gap`: the component that lost the events, such as `dataplane`. In an
   * `address_shared`: the names of the integrations. In a `value_unreadable`: the key in etcd.
   */
  readonly target: string | null;
};

/** A destination before DNAT. `port`: null if the protocol has no ports. */
type WireDestination = { readonly address: string; readonly port: number | null };

/** The API's response to a management write: the HTTP status, and the ETag of the new state. */
export type WriteResponse = { readonly status: number; readonly etag: string | null };

/**
 * The values that a merge adds to a finding: a count, and the times of the first and last event. Times are
 * milliseconds since 1970.
 */
export type FindingDelta = FindingIdentity & {
  /** The generation of the policy that decided the last event. Null if no policy decided. */
  readonly generation: number | null;
  /**
   * The ids of the groups whose sources contain the source, if the default of the policy decided the last
   * event. Null if they are not known, if something else decided, and if the finding has no source. Findings
   * that an older build stored lack this field.
   */
  readonly sourceGroups?: readonly string[] | null;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly count: number;
  /** The response to the API write that the finding is about. Set only in a `config_change`. */
  readonly written?: WriteResponse;
};

export type Finding = FindingDelta & { readonly id: string };
