/**
 * The type of a finding (D31). `config_change`: a management write. `gap`: events that were lost before they
 * became findings.
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
] as const;
/** The types that a list contains unless the query names types: denies and refused logins. */
export const LISTED_TYPES = FINDING_TYPES.filter((type) => type !== 'config_change' && type !== 'gap');
export type FindingType = (typeof FINDING_TYPES)[number];

/** The fields that make two findings equal. Fields that do not apply are null. */
export type FindingIdentity = {
  readonly type: FindingType;
  readonly policyId: string | null;
  readonly sourceGroup: string | null;
  readonly rule: string | null;
  /** Null if no policy was evaluated, or if the policy that decided is no longer known. */
  readonly decidedBy: 'rule' | 'group_default' | 'policy_default' | null;
  /** An address as text. */
  readonly source: string | null;
  readonly destination: string | null;
  readonly destinationPort: number | null;
  readonly protocol: number | null;
  readonly hostname: string | null;
  readonly sni: string | null;
  readonly http: { readonly method: string; readonly host: string; readonly path: string } | null;
  readonly icmpType: number | null;
  readonly icmpCode: number | null;
  readonly dropReason: string | null;
  /** The reason of a deny of the service plane, in addition to the rule. Null in findings of older builds. */
  readonly reason: string | null;
  readonly effectiveAction: 'allow' | 'deny';
  /** The subject of the token that wrote or tried to write. */
  readonly actor: string | null;
  /** The operation id of the API. */
  readonly operation: string | null;
  /** The path of the request. In a `gap`: where events were lost. */
  readonly target: string | null;
};

/** The response to a management write: its HTTP status, and the ETag of the new state. */
export type WriteResponse = { readonly status: number; readonly etag: string | null };

/** The increments of a finding since the last merge. Times are milliseconds since 1970. */
export type FindingDelta = FindingIdentity & {
  /** The generation of the policy that decided last. Null if no policy decided. */
  readonly generation: number | null;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly count: number;
  /** Set in a `config_change`. */
  readonly written?: WriteResponse;
};

export type Finding = FindingDelta & { readonly id: string };
