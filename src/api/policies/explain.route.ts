import { z } from 'zod';
import { familyOf, formatAddress, parseAddress, parseIpv4Address } from '#addresses/ip-address.js';
import { authorOf } from '#api/access/authentication.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError, detailOf } from '#api/errors/errors.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import { readBodyAs } from '#api/requests/request-body.js';
import { OwnerSchema } from '#api/traffic/owner.schema.js';
import { type Address, ICMP, type Packet, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import type { ExplainQuestion } from '#policies/explain.js';
import { addressFault } from '#policy/check/validation/value-validation.js';
import { kubernetesSourceSchema, policySchema, protoSchema } from '#policy/document/policy-schema.js';
import type { ExplainQuery } from '#policy/explain/explain.js';
import { parseProtocol } from '#policy/model/keywords.js';
import { canonicalName, hostnameFault } from '#policy/model/names/hostname.js';
import { ShownPacketSchema } from './packet.schema.js';

const address = z
  .string()
  .refine((text) => addressFault(text, true) === undefined, {
    error: ({ input }) => addressFault(String(input), true)?.message ?? 'Write an IP address.',
  })
  .meta({ format: 'ip' });
const port = z.int().min(0).max(65_535);
const byte = z.int().min(0).max(255);
const lookedUp = z
  .string()
  .min(1)
  .max(254)
  .refine((text) => hostnameFault(text, { isLookup: true }) === undefined, {
    error: ({ input }) => `No client looks up this name: ${hostnameFault(String(input), { isLookup: true })}.`,
  });
const serverName = z
  .string()
  .max(254)
  .refine((text) => hostnameFault(text) === undefined && parseIpv4Address(text) === undefined, {
    error: ({ input }) =>
      `No client sends this server name: ${hostnameFault(String(input)) ?? 'an address is not a server name'}.`,
  });
const requestHost = z.string().refine(
  (text) => {
    const host = text.replace(/:\d+$/, '');
    return hostnameFault(host) === undefined || /^\[[0-9A-Fa-f:.]{2,45}\]$/.test(host);
  },
  { error: 'No request has this host: write a name or an address, with or without a port.' },
);
const requestPath = z
  .string()
  .max(8_192)
  .regex(/^(?:\/[!"$->@-[\]-~]*|\*)$/, {
    error:
      'No request that is read has this path: it begins with "/", and has visible ASCII characters without "#", "?" and "\\". The query has its own field.',
  });
const draft = policySchema.optional().describe('A draft in singleton form. Default: the active policy.');

const PacketSchema = z
  .strictObject({
    policy: draft,
    src: address,
    dst: address,
    proto: protoSchema.describe('The name or number of one protocol; `any` is not allowed.'),
    src_port: port.optional().describe('Default: 0. `reason` mentions the default if a rule tests the source port.'),
    dst_port: port.optional().describe('Required for TCP, UDP, UDP-Lite, SCTP and DCCP.'),
    icmp_type: byte.optional().describe('Required for ICMP and ICMPv6.'),
    icmp_code: byte.optional().describe('Default: 0.'),
    interface: z
      .string()
      .min(1)
      .max(15)
      .optional()
      .describe(
        'The interface on which the packet arrives. Default: the interface on which the routes of the node reach the source.',
      ),
    hostname: lookedUp
      .optional()
      .describe('Assumes that the destination is granted for this name, in addition to the current grants.'),
    sni: serverName
      .optional()
      .describe(
        'The server name in the TLS ClientHello. Default: none; `unknown` lists `sni` if a rule tests the name.',
      ),
    tls: z
      .strictObject({
        hello: z
          .enum(['plain', 'ech', 'not_tls'])
          .optional()
          .describe(
            'The first bytes that the client sends. Default: a ClientHello without an extension for Encrypted Client Hello (`plain`). `ech`: a ClientHello with this extension, as browsers send; `sni` is then the name in the outer ClientHello.',
          ),
        version: z.enum(['1.2', '1.3']).optional(),
        trusted: z
          .boolean()
          .optional()
          .describe('Whether the certificate chain of the server leads to a trusted certificate. Default: true.'),
        server_dn: z.string().optional(),
        server_san: z.array(z.string()).optional(),
        server_cn: z.string().optional(),
        fingerprint_sha256: z.string().optional(),
      })
      .optional()
      .describe(
        'The TLS connection to the server. Without this object, or with version 1.3, the certificate of the server is hidden.',
      ),
    http: z
      .strictObject({
        method: z.string().optional(),
        host: requestHost.optional(),
        path: requestPath.optional(),
        query: z.record(z.string(), z.array(z.string())).optional(),
        headers: z.record(z.string(), z.array(z.string())).optional(),
      })
      .optional()
      .describe('The request on an intercepted connection. Default: `GET /` to the host in `sni`, without headers.'),
  })
  .meta({
    id: 'ExplainPacket',
    description: 'Asks which verdict a packet gets.',
    examples: [{ src: '10.0.0.7', dst: '192.0.2.10', proto: 'tcp', src_port: 40_000, dst_port: 443 }],
  });
const LookupSchema = z
  .strictObject({ policy: draft, src: address, query: lookedUp.describe('The name in the DNS query.') })
  .meta({
    id: 'ExplainLookup',
    description: 'Asks whether a source may look up a name.',
    examples: [{ src: '10.0.0.7', query: 'api.example.com' }],
  });

const ExplainedSchema = z
  .object({
    decision: z
      .enum(['allow', 'deny'])
      .describe(
        'The decision of the node at this time. For a connection that a TLS rule inspects: the decision for the given `sni`, `tls` and `http`.',
      ),
    effective_action: z
      .enum(['allow', 'deny'])
      .describe('In audit mode a denied packet passes, so the effective action is `allow`.'),
    mode: z.enum(['audit', 'enforce']),
    source_group: z.string().nullable(),
    rule: z.string().nullable(),
    enforced_instead: z
      .int()
      .nullable()
      .describe(
        'The generation that the kernel enforces instead of the active policy, because the data folder is an older or another one. Null if the active policy is in force, and for a draft.',
      ),
    reason: z.string(),
    reply_to: ShownPacketSchema.nullable().describe(
      'The first packet of a flow in which this packet would be a reply, as a question about a packet. Given if the policy denies this packet and can allow that flow: replies of an allowed flow pass without a rule. Otherwise null.',
    ),
    owners: z
      .object({ source: OwnerSchema.nullable(), destination: OwnerSchema.nullable() })
      .describe(
        'The Kubernetes objects that own the addresses now; null without an owner. `destination`: of the destination that the policy sees, after DNAT.',
      ),
    selected_by: kubernetesSourceSchema
      .nullable()
      .describe('The first Kubernetes selector of `source_group` that selects the source.'),
    walk: z
      .array(
        z.object({
          source_group: z.string().nullable(),
          rule: z.string().nullable(),
          matched: z.boolean(),
          why: z.string(),
        }),
      )
      .describe('All evaluated groups and rules in order. The last one decides.'),
    walk_omitted: z.int().min(0).describe('The number of steps before the last step that the response omits.'),
    unknown: z
      .array(z.string())
      .describe(
        'Missing facts that can change the decision, such as `sni` or `interface`. `query`: ask about the DNS lookup instead. `translation`: the node may translate the destination, and then the policy sees the server. `grants`, `dataplane`: the datapath did not respond.',
      ),
  })
  .meta({ id: 'Explained' });

export const explainResource: Resource = (api, management) => {
  api.post(
    '/api/v1/policy/explain',
    {
      config: { access: { management: 'read' } },
      validatorCompiler: readBodyAs(meant),
      schema: {
        operationId: 'explainPolicy',
        tags: ['policy'],
        summary: 'Explain why a packet or a DNS lookup is allowed or denied',
        querystring: noQuery,
        body: z.union([PacketSchema, LookupSchema]),
        response: {
          200: ExplainedSchema,
          ...errorAnswers(
            ...errorsOf.body,
            'invalid_policy',
            'too_many_questions',
            'too_costly',
            'feature_unavailable',
          ),
        },
      },
    },
    async (request, reply) => {
      const explained = await management.policies.explain(questionOf(request.body), authorOf(request));
      if ('kind' in explained) throw refused(explained);
      const { walk, unknown, selected_by: selector, reply_to: opener } = explained;
      return reply.send({
        ...explained,
        reply_to: opener === null ? null : questionAbout(opener),
        selected_by: selector === null ? null : kubernetesSourceSchema.parse(selector),
        walk: [...walk],
        unknown: [...unknown],
      });
    },
  );
};

const meant = (body: unknown) =>
  typeof body === 'object' && body !== null && Object.hasOwn(body, 'query') ? LookupSchema : PacketSchema;

function questionOf({
  policy,
  ...asked
}: z.infer<typeof PacketSchema> | z.infer<typeof LookupSchema>): ExplainQuestion {
  return { ...(policy === undefined ? {} : { policy }), query: 'query' in asked ? lookupOf(asked) : packetOf(asked) };
}

function lookupOf({ src, query }: z.infer<typeof LookupSchema>): ExplainQuery {
  return { source: addressOf(src), query: canonicalName(query) };
}

function packetOf(asked: Omit<z.infer<typeof PacketSchema>, 'policy'>): ExplainQuery {
  const protocol = parseProtocol(asked.proto);
  if (protocol === undefined || protocol === 'any') {
    throw new ApiError('invalid_request', '/proto: Must be tcp, udp, icmp, icmpv6, or a number.', [
      { pointer: '/proto', code: 'invalid_protocol', message: 'Must be tcp, udp, icmp, icmpv6, or a number.' },
    ]);
  }
  if (PORT_PROTOCOLS.includes(protocol) && asked.dst_port === undefined) throw missing('/dst_port');
  const [source, destination] = [addressOf(asked.src), addressOf(asked.dst)];
  if (familyOf(source) !== familyOf(destination))
    throw new ApiError('invalid_request', detailOf(TWO_FAMILIES), TWO_FAMILIES);
  if (protocol === ICMP[familyOf(source)] && asked.icmp_type === undefined) throw missing('/icmp_type');
  return {
    packet: {
      source,
      destination,
      protocol,
      sourcePort: asked.src_port ?? 0,
      destinationPort: asked.dst_port ?? 0,
      icmpType: asked.icmp_type ?? 0,
      icmpCode: asked.icmp_code ?? 0,
    },
    ...(asked.src_port === undefined ? { sourcePortAssumed: true } : {}),
    ingress: asked.interface,
    hostname: asked.hostname === undefined ? undefined : canonicalName(asked.hostname),
    ...(asked.sni === undefined && asked.tls === undefined && asked.http === undefined
      ? {}
      : { connection: { sni: asked.sni, tls: asked.tls, http: asked.http } }),
  };
}

/** Returns a packet in the form of an explain request. */
function questionAbout({
  source,
  destination,
  protocol,
  ...packet
}: Packet): z.infer<typeof ExplainedSchema>['reply_to'] {
  const ports = { src_port: packet.sourcePort, dst_port: packet.destinationPort };
  const icmp = { icmp_type: packet.icmpType, icmp_code: packet.icmpCode };
  return {
    src: formatAddress(source),
    dst: formatAddress(destination),
    proto: protocol,
    ...(PORT_PROTOCOLS.includes(protocol) ? ports : {}),
    ...(protocol === ICMP[familyOf(source)] ? icmp : {}),
  };
}

const TWO_FAMILIES = [
  {
    pointer: '/dst',
    code: 'invalid_address',
    message: 'The source and the destination of a packet are both of IPv4, or both of IPv6.',
  },
] as const;

function missing(pointer: string): ApiError {
  const problems = [{ pointer, code: 'required', message: 'This field is required for this protocol.' }] as const;
  return new ApiError('invalid_request', detailOf(problems), problems);
}

function addressOf(text: string): Address {
  const address = parseAddress(text);
  if (address === undefined)
    throw new RangeError(`explain a packet: the schema accepted ${text}, which is not an address`);
  return address;
}
