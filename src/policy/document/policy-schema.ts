import { z } from 'zod';
import { MAX_REGEX_BYTES } from '#policy/model/names/regex.js';
import { MAX_PORT, PORT_PATTERN } from '#policy/model/parse-ports.js';
import { LIMITS } from './limits.js';

/**
 * The Zod schemas of policy documents. Every object schema rejects unknown fields. The patterns and examples
 * in `meta` appear only in the OpenAPI description; `validate.ts` checks the contents of strings.
 */
const ADDRESS = '^[0-9]{1,3}(\\.[0-9]{1,3}){3}$';
const CIDR = '^[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,2})?$';

const regex = () =>
  z.string().meta({
    description: `A regular expression in RE2 syntax, at most ${MAX_REGEX_BYTES} bytes. It matches anywhere in the text unless it is anchored.`,
  });
const strings = () => z.array(z.string());
const listsByKey = () => z.record(z.string(), strings());
const regexByKey = () => z.record(z.string(), regex());

const actionSchema = z.string().meta({
  id: 'Action',
  description: 'Allows or denies the matching traffic. The case of the word does not matter.',
  pattern: '^([Aa][Ll][Ll][Oo][Ww]|[Dd][Ee][Nn][Yy])$',
  examples: ['allow', 'deny'],
});

const modeSchema = z.enum(['audit', 'enforce']).meta({
  id: 'Mode',
  description: 'In the mode audit, a denied packet passes and is recorded.',
  examples: ['enforce'],
});

export const envelopeModeSchema = z
  .enum(['disabled', 'audit', 'enforce'])
  .meta({ id: 'EnvelopeMode', description: 'The mode of a stored policy.', examples: ['enforce'] });

const prioritySchema = z
  .int()
  .min(0)
  .max(LIMITS.priority)
  .meta({
    id: 'Priority',
    description: 'Lower priorities are evaluated first. Default: the index in the list, beginning with 0.',
    examples: [10],
  });

export const protoSchema = z
  .union([
    z.string().meta({ pattern: '^([Tt][Cc][Pp]|[Uu][Dd][Pp]|[Ii][Cc][Mm][Pp]|[Aa][Nn][Yy])$' }),
    z.int().min(0).max(255),
  ])
  .meta({
    id: 'ProtoValue',
    description: 'A protocol name (tcp, udp, icmp, any) or an IP protocol number.',
    examples: ['tcp', 47],
  });

export const portSchema = z.union([z.int().min(0).max(MAX_PORT), z.string().meta({ pattern: PORT_PATTERN })]).meta({
  id: 'PortSpec',
  description: 'A port, or a range "low-high" with both ends included.',
  examples: [443, '8000-8100'],
});

const byte = () => z.int().min(0).max(255);

const nameMatchObjectSchema = z
  .strictObject({
    exact: strings()
      .optional()
      .meta({ description: 'Names, "*." before a name, or "*", compared case-insensitively.' }),
    regex: regex().optional(),
  })
  .meta({
    id: 'NameMatch',
    description: 'A list of names, a regular expression, or both.',
    examples: [{ exact: ['api.example.com'] }],
  });

const tlsNameMatchSchema = z.union([regex(), strings(), nameMatchObjectSchema]).meta({
  id: 'TlsNameMatch',
  description:
    'A regular expression in RE2 syntax, a list of names (also "*." before a name), or an object whose parts must all match.',
  examples: ['^api\\.example\\.com$', ['api.example.com'], { exact: ['api.example.com'], regex: '^api' }],
});

const headerMatchSchema = z
  .strictObject({
    require_present: strings().optional().meta({ description: 'Headers that must be present.' }),
    deny_present: strings().optional().meta({ description: 'Headers that must be absent.' }),
    exact: listsByKey().optional().meta({ description: 'Header name to the list of its permitted values.' }),
    regex: regexByKey()
      .optional()
      .meta({ description: 'Header name to a regular expression (RE2) that is searched in its value.' }),
  })
  .meta({
    id: 'HeaderMatch',
    description: 'All given fields must match. Header names are compared case-insensitively.',
    examples: [{ require_present: ['x-request-id'], exact: { 'content-type': ['application/json'] } }],
  });

const httpRequestSchema = z
  .strictObject({
    host: nameMatchObjectSchema.optional().meta({ description: 'At least one of the given fields must match.' }),
    methods: strings().optional().meta({ description: 'HTTP methods, in any case.' }),
    path: z
      .strictObject({
        exact: strings().optional().meta({ description: 'Whole paths.' }),
        prefix: strings().optional().meta({ description: 'Beginnings of paths.' }),
        regex: regex().optional(),
      })
      .optional()
      .meta({ description: 'At least one of the given fields must match.' }),
    query: z
      .strictObject({
        keys_present: strings().optional().meta({ description: 'Parameters that must be present.' }),
        key_values_exact: listsByKey()
          .optional()
          .meta({ description: 'Parameter to the list of its permitted values.' }),
        key_values_regex: regexByKey()
          .optional()
          .meta({ description: 'Parameter to a regular expression (RE2) that is searched in its value.' }),
      })
      .optional()
      .meta({ description: 'All given fields must match. Keys and values are compared after decoding.' }),
    headers: headerMatchSchema.optional(),
  })
  .meta({
    id: 'HttpRequestPolicyConfig',
    description: 'Matchers for a request; all given matchers must match.',
    examples: [{ methods: ['GET'], path: { prefix: ['/v1/'] } }],
  });

const httpResponseSchema = z.strictObject({ headers: headerMatchSchema.optional() }).meta({
  id: 'HttpResponsePolicyConfig',
  description: 'Matchers for the headers of a response.',
  examples: [{ headers: { deny_present: ['x-internal'] } }],
});

const httpMatchSchema = z
  .strictObject({ request: httpRequestSchema.optional(), response: httpResponseSchema.optional() })
  .meta({
    id: 'HttpMatchConfig',
    description: 'At least one of request and response is set.',
    examples: [{ request: { methods: ['GET'] } }],
  });

export const tlsMatchSchema = z
  .strictObject({
    mode: z.enum(['metadata', 'intercept']).optional().meta({ description: 'Left out: metadata.' }),
    sni: tlsNameMatchSchema.optional().meta({
      description:
        'The server name in the TLS ClientHello. With Encrypted Client Hello, the name in the outer ClientHello.',
    }),
    ech: z.enum(['present', 'absent']).optional().meta({
      description:
        'Whether the ClientHello has an extension for Encrypted Client Hello. Browsers always send one: GREASE if they have no key. Only the server can tell GREASE from a hidden name.',
    }),
    server_dn: z
      .string()
      .optional()
      .meta({ description: 'The distinguished name of the subject, in the notation of RFC 4514.' }),
    server_san: tlsNameMatchSchema
      .optional()
      .meta({ description: 'Any DNS name in the subject alternative names of the server certificate.' }),
    server_cn: tlsNameMatchSchema
      .optional()
      .meta({ description: 'Any common name in the subject of the certificate.' }),
    fingerprint_sha256: z
      .array(z.string().meta({ pattern: '^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$' }))
      .optional()
      .meta({ description: 'SHA-256 of the DER form of the certificate, as 64 hex digits. Colons are allowed.' }),
    trust_anchors_pem: strings().optional().meta({
      description:
        'Certificates in PEM that replace the trusted certificates of the node (`service_plane.upstream_ca`) for this rule.',
    }),
    tls13_uninspectable: actionSchema.optional().meta({
      description:
        'The action if all visible attributes match, and TLS 1.3 or session resumption hides the certificate. Default: deny.',
    }),
    http: httpMatchSchema
      .optional()
      .meta({ description: 'Matchers for requests and responses. Requires the mode intercept.' }),
  })
  .meta({
    id: 'TlsMatchConfig',
    description: 'Matchers for a TLS connection. An empty object matches every TLS connection.',
    examples: [{ sni: ['api.example.com'] }, { mode: 'intercept', http: { request: { methods: ['GET'] } } }],
  });

const networksSchema = z.array(z.string().meta({ pattern: CIDR })).optional();
const addressesSchema = z.array(z.string().meta({ pattern: ADDRESS })).optional();
const ruleMatchSchema = z
  .strictObject({
    dst_cidrs: networksSchema.meta({
      description: 'Destination networks. An address without a prefix length is a /32.',
    }),
    dst_ips: addressesSchema.meta({ description: 'Destination addresses, in addition to dst_cidrs.' }),
    dns_hostname: z
      .string()
      .optional()
      .meta({
        description:
          'A name, "*." before a name, "*", or a regular expression in RE2 syntax. Matches the addresses that are granted for these names.',
        examples: ['*.example.com'],
      }),
    proto: protoSchema
      .optional()
      .meta({ description: 'A protocol name (tcp, udp, icmp, any) or an IP protocol number. Default: any.' }),
    src_ports: z
      .array(portSchema)
      .optional()
      .meta({ description: 'Source ports. For TCP, UDP, UDP-Lite, SCTP and DCCP only.' }),
    dst_ports: z
      .array(portSchema)
      .optional()
      .meta({ description: 'Destination ports. For TCP, UDP, UDP-Lite, SCTP and DCCP only.' }),
    icmp_types: z.array(byte()).optional().meta({
      description: 'ICMP types. Default with proto icmp and without icmp_codes: 0, 3, 8, 11 and 12.',
    }),
    icmp_codes: z
      .array(byte())
      .optional()
      .meta({ description: 'ICMP codes. They are tested independently of the types.' }),
    tls: tlsMatchSchema
      .optional()
      .meta({ description: 'Matchers for TLS and HTTP. A rule with this field matches only TCP.' }),
  })
  .meta({
    id: 'RuleMatchConfig',
    description: 'Selects the traffic of a rule. All given matchers must match. An empty object matches every packet.',
    examples: [{ dst_cidrs: ['192.0.2.0/24'], proto: 'tcp', dst_ports: [443, '8000-8100'] }],
  });

const idSchema = z
  .string()
  .meta({ minLength: 1, description: 'Unique in its list. Findings, hits and explanations refer to this id.' });

const ruleSchema = z
  .strictObject({
    id: idSchema,
    priority: prioritySchema.optional(),
    action: actionSchema,
    mode: modeSchema.optional().meta({ description: 'Replaces the mode of the source group for this rule.' }),
    match: ruleMatchSchema,
  })
  .meta({
    id: 'RuleConfig',
    description: 'The first rule that matches decides.',
    examples: [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [443] } }],
  });

const labelExpressionSchema = z
  .strictObject({
    key: z.string().meta({ description: 'The key of a label.' }),
    operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']).meta({
      description: 'NotIn and DoesNotExist also match an object without the label.',
    }),
    values: strings().optional().meta({ description: 'At least one value for In and NotIn; none otherwise.' }),
  })
  .meta({
    id: 'LabelExpression',
    description: 'A condition on one label, as in Kubernetes.',
    examples: [{ key: 'tier', operator: 'In', values: ['web', 'api'] }],
  });

/** The fields of a label selector. `what`: the objects that have the labels. */
const labelSelectorFields = (what: string) => ({
  match_labels: z
    .record(z.string(), z.string())
    .optional()
    .meta({ description: `Labels that a ${what} must have.` }),
  match_expressions: z
    .array(labelExpressionSchema)
    .optional()
    .meta({ description: `Conditions on labels, all of which a ${what} must meet.` }),
});

export const kubernetesSourceSchema = z
  .strictObject({
    integration: z.string().meta({ description: 'The name of an integration.' }),
    pod_selector: z
      .strictObject({
        namespace: z.string().optional().meta({ description: 'The namespace. Default: every namespace.' }),
        namespace_selector: z
          .strictObject(labelSelectorFields('namespace'))
          .optional()
          .meta({ description: 'Selects namespaces by their labels. Default: every namespace.' }),
        service_account: z.string().optional().meta({ description: 'The service account. Default: every one.' }),
        ...labelSelectorFields('pod'),
      })
      .optional()
      .meta({ description: 'Selects the addresses of pods. All given fields must match.' }),
    node_selector: z
      .strictObject({
        ...labelSelectorFields('node'),
        addresses: z
          .array(z.enum(['InternalIP', 'ExternalIP', 'podCIDRs']))
          .optional()
          .meta({
            description:
              'The addresses of a node that are selected; `podCIDRs` are the networks of its pods. Default: InternalIP.',
          }),
      })
      .optional()
      .meta({ description: 'Selects the addresses of nodes. All given fields must match.' }),
  })
  .meta({
    id: 'KubernetesSource',
    description: 'A dynamic source. Exactly one of pod_selector and node_selector is set.',
    examples: [{ integration: 'prod', pod_selector: { namespace: 'shop', match_labels: { app: 'web' } } }],
  });

const sourcesSchema = z
  .strictObject({
    cidrs: networksSchema.meta({ description: 'Source networks. An address without a prefix length is a /32.' }),
    ips: addressesSchema.meta({ description: 'Source addresses.' }),
    kubernetes: z.array(kubernetesSourceSchema).optional().meta({ description: 'Dynamic sources.' }),
  })
  .meta({
    id: 'SourcesConfig',
    description: 'The sources of a group: the union of all given fields. At least one source is required.',
    examples: [{ cidrs: ['10.0.0.0/8'], ips: ['192.0.2.7'] }],
  });

const groupFields = {
  priority: prioritySchema.optional(),
  sources: sourcesSchema,
  rules: z.array(ruleSchema).optional().meta({ description: 'Default: none.' }),
  default_action: actionSchema.optional().meta({
    description: 'Decides if no rule of the group matches. Default: the evaluation continues with the next group.',
  }),
};
const groupExample = { id: 'office', sources: { cidrs: ['10.0.0.0/8'] }, default_action: 'deny' };

export const groupSchema = z.strictObject({ id: idSchema, mode: modeSchema, ...groupFields }).meta({
  id: 'SourceGroupConfig',
  description: 'A set of sources and its rules in the singleton form, with a mode.',
  examples: [{ ...groupExample, mode: 'enforce' }],
});

export const envelopeGroupSchema = z.strictObject({ id: idSchema, ...groupFields }).meta({
  id: 'EnvelopeSourceGroupConfig',
  description: 'A set of sources and its rules in the envelope form; the envelope has the mode.',
  examples: [groupExample],
});

/** The body of a write of one group, whose id is in the path. */
export const pathGroupSchema = z
  .strictObject({ id: idSchema.optional(), mode: modeSchema.optional(), ...groupFields })
  .meta({
    id: 'SourceGroupWrite',
    description:
      'A source group whose id is in the path. It has a mode in the singleton form, and none in the envelope form.',
    examples: [{ sources: groupExample.sources, default_action: 'deny' }],
  });

export const storedGroupSchema = z.strictObject({ id: idSchema, mode: modeSchema.optional(), ...groupFields }).meta({
  id: 'StoredSourceGroupConfig',
  description: 'A source group as it was written. It has a mode if its policy was written in the singleton form.',
  examples: [groupExample],
});

const policyOf = <Group extends z.ZodType>(group: Group) =>
  z.strictObject({
    default_policy: actionSchema
      .optional()
      .meta({ description: 'Decides for packets that no group decides. Default: `policy.fallback` of the node.' }),
    source_groups: z
      .array(group)
      .optional()
      .meta({ description: 'At most 100,000, with at most 100,000 rules together. Default: none.' }),
  });

/** The schema of the body of `PUT /api/v1/policy`. */
export const policySchema = policyOf(groupSchema).meta({
  id: 'PolicyConfig',
  description: 'A policy in the singleton form.',
  examples: [{ default_policy: 'deny', source_groups: [{ ...groupExample, mode: 'enforce' }] }],
});

export const envelopePolicySchema = policyOf(envelopeGroupSchema).meta({
  id: 'EnvelopePolicyConfig',
  description: 'A policy in the envelope form.',
  examples: [{ default_policy: 'deny', source_groups: [groupExample] }],
});

/** The schema of a policy in the responses of the collection endpoints. */
export const storedPolicySchema = policyOf(storedGroupSchema).meta({
  id: 'StoredPolicyConfig',
  description: 'A policy as it was written, in either form.',
  examples: [{ default_policy: 'deny', source_groups: [groupExample] }],
});

/** The schema of the body of writes to `/api/v1/policies`. */
export const envelopeSchema = z
  .strictObject({
    mode: envelopeModeSchema,
    name: z
      .string()
      .optional()
      .meta({
        description: `1 to ${LIMITS.nameLength} printable characters. White space around the name is removed. Unique, compared case-insensitively.`,
      }),
    policy: envelopePolicySchema,
  })
  .meta({
    id: 'PolicyEnvelope',
    description: 'A policy with its mode and its name.',
    examples: [{ mode: 'enforce', name: 'default', policy: { default_policy: 'deny', source_groups: [groupExample] } }],
  });
