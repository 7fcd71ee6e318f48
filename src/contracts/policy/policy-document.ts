/**
 * The types of a policy document as operators write it. The management API returns the document unchanged
 * (D6). `policy-schema.ts` validates documents by these types. `normalise.ts` converts a document into the
 * policy model.
 */
export type ActionWord = string;
type Mode = 'audit' | 'enforce';
export type EnvelopeMode = 'disabled' | Mode;
export type Form = 'envelope' | 'singleton';

export type PolicyEnvelope = {
  readonly mode: EnvelopeMode;
  readonly name?: string | undefined;
  readonly policy: PolicyConfig;
};

export type PolicyConfig = {
  readonly default_policy?: ActionWord | undefined;
  readonly source_groups?: readonly SourceGroupConfig[] | undefined;
};

export type SourceGroupConfig = {
  readonly id: string;
  readonly mode?: Mode | undefined;
  readonly priority?: number | undefined;
  readonly sources: SourcesConfig;
  readonly rules?: readonly RuleConfig[] | undefined;
  readonly default_action?: ActionWord | undefined;
};

export type SourcesConfig = {
  readonly cidrs?: readonly string[] | undefined;
  readonly ips?: readonly string[] | undefined;
  readonly kubernetes?: readonly KubernetesSource[] | undefined;
};

export type KubernetesSource = {
  readonly integration: string;
  readonly pod_selector?: PodSelectorConfig | undefined;
  readonly node_selector?: NodeSelectorConfig | undefined;
};

/** A label selector of Kubernetes. All given fields must match. */
export type LabelSelectorConfig = {
  readonly match_labels?: Readonly<Record<string, string>> | undefined;
  readonly match_expressions?: readonly LabelExpressionConfig[] | undefined;
};

export type LabelExpressionConfig = {
  readonly key: string;
  readonly operator: LabelOperator;
  readonly values?: readonly string[] | undefined;
};
type LabelOperator = 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';

export type PodSelectorConfig = LabelSelectorConfig & {
  readonly namespace?: string | undefined;
  readonly namespace_selector?: LabelSelectorConfig | undefined;
  readonly service_account?: string | undefined;
};

export type NodeSelectorConfig = LabelSelectorConfig & { readonly addresses?: readonly NodeAddress[] | undefined };
export type NodeAddress = 'InternalIP' | 'ExternalIP' | 'podCIDRs';

export type RuleConfig = {
  readonly id: string;
  readonly priority?: number | undefined;
  readonly action: ActionWord;
  readonly mode?: Mode | undefined;
  readonly match: RuleMatchConfig;
};

export type PortSpec = number | string;

export type RuleMatchConfig = {
  readonly dst_cidrs?: readonly string[] | undefined;
  readonly dst_ips?: readonly string[] | undefined;
  readonly dns_hostname?: string | undefined;
  readonly proto?: string | number | undefined;
  readonly src_ports?: readonly PortSpec[] | undefined;
  readonly dst_ports?: readonly PortSpec[] | undefined;
  readonly icmp_types?: readonly number[] | undefined;
  readonly icmp_codes?: readonly number[] | undefined;
  readonly tls?: TlsMatchConfig | undefined;
};

export type NameMatchObject = { readonly exact?: readonly string[] | undefined; readonly regex?: string | undefined };
export type TlsNameMatch = string | readonly string[] | NameMatchObject;

export type TlsMatchConfig = {
  readonly mode?: 'metadata' | 'intercept' | undefined;
  readonly sni?: TlsNameMatch | undefined;
  readonly ech?: 'present' | 'absent' | undefined;
  readonly server_dn?: string | undefined;
  readonly server_san?: TlsNameMatch | undefined;
  readonly server_cn?: TlsNameMatch | undefined;
  readonly fingerprint_sha256?: readonly string[] | undefined;
  readonly trust_anchors_pem?: readonly string[] | undefined;
  readonly tls13_uninspectable?: ActionWord | undefined;
  readonly http?: HttpMatchConfig | undefined;
};

export type HttpMatchConfig = {
  readonly request?: HttpRequestMatchConfig | undefined;
  readonly response?: HttpResponseMatchConfig | undefined;
};

export type HttpRequestMatchConfig = {
  readonly host?: NameMatchObject | undefined;
  readonly methods?: readonly string[] | undefined;
  readonly path?:
    | {
        readonly exact?: readonly string[] | undefined;
        readonly prefix?: readonly string[] | undefined;
        readonly regex?: string | undefined;
      }
    | undefined;
  readonly query?:
    | {
        readonly keys_present?: readonly string[] | undefined;
        readonly key_values_exact?: Readonly<Record<string, readonly string[]>> | undefined;
        readonly key_values_regex?: Readonly<Record<string, string>> | undefined;
      }
    | undefined;
  readonly headers?: HeaderMatchConfig | undefined;
};

type HttpResponseMatchConfig = { readonly headers?: HeaderMatchConfig | undefined };

export type HeaderMatchConfig = {
  readonly require_present?: readonly string[] | undefined;
  readonly deny_present?: readonly string[] | undefined;
  readonly exact?: Readonly<Record<string, readonly string[]>> | undefined;
  readonly regex?: Readonly<Record<string, string>> | undefined;
};
