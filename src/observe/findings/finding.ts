/** What a finding is of (D31). `config_change`: a management write. `gap`: events that were lost before they could be findings. */
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
/** The types of a list unless the query names types: denies and refused logins. */
export const LISTED_TYPES = FINDING_TYPES.filter((type) => type !== 'config_change' && type !== 'gap');
export type FindingType = (typeof FINDING_TYPES)[number];

/** What makes two findings equal. Whatever does not apply is null. */
export type FindingIdentity = {
  readonly type: FindingType;
  readonly policyId: string | null;
  readonly sourceGroup: string | null;
  readonly rule: string | null;
  /** Null where nothing was judged, or where the policy that judged is not known any more. */
  readonly decidedBy: 'rule' | 'group_default' | 'policy_default' | null;
  /** As text. */
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
  /** Of what the service plane denied: why, beside what the rule says. Findings of an older build have none. */
  readonly reason: string | null;
  readonly effectiveAction: 'allow' | 'deny';
  /** Who wrote, or tried to: the subject of a token. */
  readonly actor: string | null;
  /** The operation id of the API. */
  readonly operation: string | null;
  /** What it was about: the path, or of a `gap` where events were lost. */
  readonly target: string | null;
};

/** How a management write was answered: its HTTP status, and the ETag of what it made. */
export type MessageCache = { readonly status: number; readonly etag: string | null };

/** What was seen since it was merged last. Times are milliseconds since 1970. */
export type FindingDelta = FindingIdentity & {
  /** Of the policy that decided last; null where none did. */
  readonly generation: number | null;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly count: number;
  /** Of a `config_change`. */
  readonly written?: MessageCache;
};

export type Finding = FindingDelta & { readonly id: string };
