import { CA_ABSENT } from '#contracts/service-plane/no-intercept-ca.js';
/** An error in a policy document. `pointer` is a JSON pointer (RFC 6901) into the body of the request. */
export type Problem = { readonly pointer: string; readonly code: ProblemCode; readonly message: string };
/**
 * A warning about a valid but probably mistaken element of a policy document (D16). A warning never prevents
 * a write.
 */
export type Warning = { readonly pointer: string; readonly code: WarningCode; readonly message: string };

export type ProblemCode = keyof typeof PROBLEM_CODES;
export type WarningCode = keyof typeof WARNING_CODES;

/**
 * The code of every problem of a policy document, with its meaning; `docs/errors.md` is generated from this
 * table.
 */
export const PROBLEM_CODES = {
  invalid_utf8: 'The body is not valid UTF-8.',
  invalid_json: 'The body is not JSON; the message names the line and the column.',
  duplicate_key: 'An object names the same key twice.',
  too_deep: 'Objects and arrays are nested deeper than 32.',
  invalid_type: 'The value has the wrong JSON type.',
  required: 'A required field is missing.',
  unknown_field: 'The field is not part of the specification.',
  invalid_value: 'The value is not one of the allowed words.',
  out_of_range: 'The number is outside its bounds.',
  too_many: 'The policy exceeds a limit: the number of groups or rules, or the size of all regular expressions.',
  more_problems: 'The document has more problems than one response lists.',
  invalid_name: 'A policy name is 1 to 253 printable characters after trimming.',
  empty_id: 'An id is empty.',
  invalid_id: 'The id of a group or rule has a character that is not printable.',
  duplicate_id: 'Two groups, or two rules of one group, have the same id.',
  id_mismatch: 'The id of the group differs from the id in the path.',
  mode_required: 'In the singleton form every source group has a mode.',
  mode_not_allowed: 'In the envelope form the envelope has the mode, and a source group has none.',
  empty_sources: 'The effective source set of a source group is empty.',
  selector_count: 'A Kubernetes source sets exactly one of pod_selector and node_selector.',
  unknown_integration: 'No integration has this name.',
  invalid_label: 'A namespace, service account, label key or label value is not valid in Kubernetes.',
  expression_values: 'The operators In and NotIn need values; Exists and DoesNotExist take none.',
  invalid_action: 'An action is allow or deny.',
  invalid_address: 'The value is not an IP address.',
  invalid_cidr: 'The value is not a network in CIDR notation.',
  ipv6_not_enabled: 'The value is about IPv6, and `dataplane.ipv6` of the node is not `enforce`.',
  invalid_protocol: 'A protocol is tcp, udp, icmp, any, or a number.',
  invalid_port: 'A port is 0 to 65535, or a range low-high of two.',
  invalid_hostname: 'The value is not a name, a pattern that begins with "*.", or "*", or no name can match it.',
  invalid_regex: 'The value is not a regular expression in RE2 syntax.',
  regex_too_long: 'A regular expression is longer than 1024 bytes.',
  regex_too_large: 'A regular expression compiles to more than 1,000 instructions.',
  tls_needs_tcp: 'A rule with tls needs the protocol tcp or any.',
  icmp_needs_icmp: 'A rule with ICMP types or codes needs the protocol icmp or any.',
  icmp_with_ports: 'An ICMP rule has no ports.',
  http_needs_intercept: 'tls.http needs the TLS mode intercept.',
  intercept_needs_http: 'The TLS mode intercept needs tls.http.',
  intercept_with_metadata: 'The TLS mode intercept takes no metadata matcher.',
  http_empty: 'tls.http has neither request nor response.',
  empty_matcher: 'A matcher is present and empty.',
  invalid_fingerprint: 'A fingerprint is 64 hex digits, with or without colons.',
  invalid_trust_anchor: 'A trust anchor is one certificate in PEM.',
  invalid_method: 'An HTTP method is a token.',
  invalid_path: 'No request has this path, or a path with this beginning.',
  invalid_header_name: 'An HTTP header name is a token.',
  duplicate_header: 'Two header names are equal but for their case.',
  invalid_key: 'The key cannot be used in a map.',
} as const;

/** Every warning code and its meaning; `docs/errors.md` is generated from this table. */
export const WARNING_CODES = {
  host_bits: 'A network has bits set after its prefix; these bits are ignored.',
  never_matches: 'No packet can satisfy all matchers of the rule.',
  shadowed: 'An earlier rule decides every packet that the rule could match.',
  unreachable_group: 'Earlier groups decide every packet of these sources.',
  unanchored_regex: 'A regular expression without ^ and $ also matches in the middle of longer texts.',
  audit_falls_through:
    'A group under audit has no default_action, and an enforced default denies packets that its rules do not match.',
  inspection_widened:
    'A wider allow rule after an allow rule with TLS or HTTP matchers passes all connections that these matchers do not match.',
  hostname_never_matches: 'No name can match the regular expression of dns_hostname or tls.sni.',
  audit_before_deny: 'A deny under audit lets packets pass that a later enforced deny would drop.',
  tls_without_ports: 'A TLS rule without dst_ports redirects every TCP connection to its destinations.',
  deny_by_name: 'A deny rule by name matches only addresses that clients looked up through the DNS proxy.',
  name_without_sni:
    'An allow rule by name on port 443 has no tls.sni: every server that shares an address with the name is open.',
  quic_not_covered:
    'A deny rule with TLS matchers covers port 443, and QUIC (UDP port 443) of the same sources passes.',
  empty_list_matches_all: 'A list is present and empty, so it restricts nothing: it means the same as no list.',
  dns_off: 'The DNS proxy is not configured: a hostname rule matches nothing.',
  service_plane_off: 'The service plane is not configured: connections that match a TLS rule fail.',
  node_uninspected: 'A TLS rule matches connections from or to the node itself, which cannot be inspected.',
  selector_unresolved:
    'A Kubernetes selector was never resolved. Until it is, denies of its group match every source, and allows match only static sources.',
  selector_matches_all: 'A Kubernetes selector has no condition: it selects every pod, or every node.',
  selector_any_namespace:
    'A selector of a group that allows names no namespace: pods of every namespace with its labels get the rules.',
  address_shared:
    'Different objects of two integrations have the same address: allows by a selector do not match it, and denies by a selector do.',
  selector_matches_nothing: 'A Kubernetes selector selects no address now.',
  selector_contradicts: 'The conditions of a Kubernetes selector exclude each other, so that it selects no object.',
  no_ipv6_sources:
    'The node enforces IPv6 policies, and no group of the policy has an IPv6 source: the default decides all IPv6.',
  no_effect: 'A field has no effect in this place.',
  not_enforced: 'The policy is stored, but nothing on this node enforces it.',
  activity_taken: 'The previously active policy is no longer active.',
  audit_kept: 'The record keeps the mode audit: packets that no rule decides are recorded, not denied.',
  fallback_allows: 'policy.fallback is allow: after a boot, packets pass without a policy until this one is in force.',
  no_intercept_ca: `A rule intercepts TLS, and ${CA_ABSENT}: connections that match the rule are reset.`,
  ca_not_valid_yet: 'The intercept CA is not valid yet: intercepted connections fail until its validity begins.',
  ca_bound_to_names:
    'The name constraints of the intercept CA permit only some names: clients reject certificates for other names.',
  token_expires: 'The token of an integration expires within a day.',
  token_expired: 'The token of an integration has expired: the API server refuses it.',
  connection_failed:
    'This node cannot reach the API server of an integration, or no Kubernetes API server answers there.',
  server_untrusted: 'The CA of an integration did not sign the certificate of its API server for this host.',
  token_refused: 'The API server of an integration refuses its token.',
  access_forbidden: 'The account of an integration may not list pods, nodes or namespaces of the cluster.',
  assertion_failed:
    'An assertion does not hold for the policy in force after the write; it held as little before, only warns, or is overridden.',
  unconfirmed: 'Weir reverts the write unless it is confirmed in time.',
  rolling_out: 'Only some nodes of the cluster enforce the write at first.',
  nodes_behind: 'Some nodes of the cluster did not report in time, and put the policy in force later.',
  none_active: 'No policy is active: the fallback decides for every packet.',
} as const;

/** The body is not strict JSON (`invalid_body`), or no valid policy. `problems` has all of its problems. */
export type InvalidDocument = {
  readonly ok: false;
  readonly code: 'invalid_body' | 'invalid_policy';
  readonly problems: readonly Problem[];
};
