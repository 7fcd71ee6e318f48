import { itemAt } from '#arrays/read.js';
import type { Membership } from '#contracts/kubernetes/membership.js';
import type { PlaneState } from '#contracts/policy/explain-facts.js';
import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { Grants, Packet, Policy, Verdict } from '#contracts/policy/policy-model.js';
import type { RequestFacts } from '#contracts/service-plane/http-facts.js';
import { CA_ABSENT } from '#contracts/service-plane/no-intercept-ca.js';
import type { CertificateFacts, TlsFacts } from '#contracts/service-plane/tls-facts.js';
import {
  type Decided,
  decideConnection,
  decideRequest,
  type Step,
  StepFinder,
} from '#policy/evaluate/connection/connection-steps.js';
import type { UndecidableCause } from '#policy/evaluate/connection/tls-block.js';
import { canonicalName } from '#policy/model/names/hostname.js';

/**
 * The properties of a connection that an explain request contains. For omitted properties, the evaluation
 * uses the method `GET`, the path `/`, the SNI as host, and a certificate that TLS 1.3 hides.
 */
export type ConnectionFacts = {
  readonly sni?: string | undefined;
  readonly tls?:
    | {
        /**
         * The first bytes that the client sends. `plain` (default): a ClientHello without an extension for
         * Encrypted Client Hello. `ech`: a ClientHello with it, as browsers send; `sni` is then the name in
         * the outer ClientHello. `not_tls`: other data.
         */
        readonly hello?: 'plain' | 'ech' | 'not_tls' | undefined;
        readonly version?: '1.2' | '1.3' | undefined;
        /**
         * Whether the server certificate chain leads to a system root or to an anchor of the rule. The
         * default is true.
         */
        readonly trusted?: boolean | undefined;
        readonly server_dn?: string | undefined;
        readonly server_san?: readonly string[] | undefined;
        readonly server_cn?: string | undefined;
        readonly fingerprint_sha256?: string | undefined;
      }
    | undefined;
  readonly http?:
    | {
        readonly method?: string | undefined;
        readonly host?: string | undefined;
        readonly path?: string | undefined;
        readonly query?: Readonly<Record<string, readonly string[]>> | undefined;
        readonly headers?: Readonly<Record<string, readonly string[]>> | undefined;
      }
    | undefined;
};

/**
 * The decision about a connection. `special` is a sentence if more than a match of the rule decided, for
 * example a hidden certificate or a missing intercept CA; otherwise null.
 */
export type ExplainedConnection = {
  readonly step: Step;
  readonly verdict: Verdict;
  readonly special: string | null;
  /** Names of properties that the explain request omits and that an evaluated rule needs. */
  readonly unknown: readonly string[];
};

/**
 * Decides a connection that the datapath redirects to the service plane (TLS and HTTP inspection), and
 * explains the decision. Visits the rules in the same order as the service plane (D22).
 */
export function explainConnection(
  policy: Policy,
  packet: Packet,
  grants: Grants,
  question: ConnectionFacts,
  plane: PlaneState,
  membership: Membership,
): ExplainedConnection {
  const { resolution, members } = membership;
  const finder = new StepFinder({ policy, program: null, generation: 0, scope: resolution }, members);
  const steps = finder.stepsOf(packet, grants);
  const uninspected = (step: Step, reason: string): ExplainedConnection => ({
    step,
    verdict: step.mode === 'audit' ? 'audit' : 'deny',
    special:
      step.mode === 'audit' ? `${reason}, so in audit mode it passes without inspection` : `${reason}, so it is reset`,
    unknown: [],
  });
  if (plane === 'absent') return uninspected(itemAt(steps, 0), 'the service plane of this node is not configured');
  const facts = factsOf(question);
  const decision = decideConnection(steps, facts);
  if (decision.kind === 'needs_certificate')
    throw new Error('explain a connection: the request does not state whether TLS hides the certificate of the server');
  if (decision.kind === 'decided') return explained(steps, decision, question);
  const from = itemAt(steps, decision.from);
  if (plane === 'no_ca') return uninspected(from, `a rule intercepts, and ${CA_ABSENT}`);
  const request = requestOf(question);
  if (question.sni !== undefined && request.host !== canonicalName(question.sni)) {
    const special = 'the host of the request is not the name of its connection, so the node responds with 421';
    return { step: from, verdict: 'deny', special, unknown: [] };
  }
  return explained(steps, decideRequest(steps, decision.from, facts, request), question);
}

function explained(steps: readonly Step[], decided: Decided, question: ConnectionFacts): ExplainedConnection {
  const { step, verdict, reason } = decided;
  const reached = steps.slice(0, steps.indexOf(step) + 1);
  const unknown = new Set(
    reached.flatMap(({ tls }) => (tls === null || tls === undefined ? [] : missingOf(tls, question))),
  );
  const response = step.tls?.http?.response;
  if (step.action === 'allow' && response !== undefined) unknown.add('http.response');
  return { step, verdict, special: specialOf(reason), unknown: [...unknown] };
}

function specialOf(reason: Decided['reason']): string | null {
  switch (reason) {
    case 'matched':
      return null;
    case 'hidden':
      return 'the certificate is hidden, so its tls13_uninspectable decides';
    case 'path_normalised':
      return 'the path in its normalised form decides';
    case 'path_decoded':
      return 'the path in its decoded form decides';
    case 'path_unreadable':
      return 'no form of the path is reliable, and an allow does not match it';
    default:
      return `${causeText(reason)}: an allow rule then does not match, and a deny rule does`;
  }
}

export function causeText(cause: UndecidableCause): string {
  switch (cause) {
    case 'no_server_name':
      return 'the client sends no server name';
    case 'certificate_unreadable':
      return 'the certificate of the server cannot be read';
    case 'certificate_untrusted':
      return 'the certificate of the server is not trusted';
    case 'not_tls':
      return 'the client does not send TLS';
    default:
      return 'the ClientHello cannot be read';
  }
}

function missingOf(tls: TlsMatchConfig, { sni, tls: seen, http }: ConnectionFacts): string[] {
  const certificate = (['server_dn', 'server_san', 'server_cn', 'fingerprint_sha256'] as const).filter((name) => {
    const asked = tls[name];
    const isEmpty = Array.isArray(asked) && asked.length === 0;
    return asked !== undefined && !isEmpty && seen?.[name] === undefined;
  });
  const request = tls.http?.request;
  const isHostKnown = http?.host !== undefined || sni !== undefined;
  return [
    ...((tls.sni !== undefined || tls.mode === 'intercept') && sni === undefined ? ['sni'] : []),
    ...(tls.ech !== undefined && seen?.hello === undefined ? ['tls.hello'] : []),
    ...certificate.map((name) => `tls.${name}`),
    ...(isDescribed(seen) && readsCertificate(tls) && seen?.trusted === undefined ? ['tls.trusted'] : []),
    ...(request?.methods !== undefined && http?.method === undefined ? ['http.method'] : []),
    ...(request?.host !== undefined && !isHostKnown ? ['http.host'] : []),
    ...(request?.path !== undefined && http?.path === undefined ? ['http.path'] : []),
    ...(request?.query !== undefined && http?.query === undefined ? ['http.query'] : []),
    ...(request?.headers !== undefined && http?.headers === undefined ? ['http.headers'] : []),
  ];
}

export function factsOf({ sni, tls }: ConnectionFacts): TlsFacts {
  const certificate = certificateOf(tls);
  if (tls?.hello === 'not_tls') return { hello: { kind: 'unreadable', fault: 'not_tls' }, certificate };
  return {
    hello: {
      kind: 'hello',
      sni: sni === undefined ? null : canonicalName(sni),
      ech: tls?.hello === 'ech',
      alpn: [],
      offersTls13: tls?.version !== '1.2',
    },
    certificate,
  };
}

const readsCertificate = ({
  server_dn,
  server_san,
  server_cn,
  fingerprint_sha256,
  trust_anchors_pem,
}: TlsMatchConfig) =>
  [server_dn, server_san, server_cn, fingerprint_sha256, trust_anchors_pem].some((member) => member !== undefined);
const isDescribed = ({
  server_dn,
  server_san,
  server_cn,
  fingerprint_sha256,
}: NonNullable<ConnectionFacts['tls']> = {}) =>
  [server_dn, server_san, server_cn, fingerprint_sha256].some((member) => member !== undefined);

/**
 * Returns the certificate of an explain request. The certificate counts as hidden by TLS 1.3 if the request
 * describes no certificate, or if its TLS version is 1.3. A described certificate is trusted unless `trusted`
 * is false.
 */
function certificateOf(tls: ConnectionFacts['tls']): CertificateFacts {
  const { version, server_dn: subject, server_san: names, server_cn: name, fingerprint_sha256: print } = tls ?? {};
  if (!isDescribed(tls) || version === '1.3') return { kind: 'hidden', by: 'tls13' };
  return {
    kind: 'seen',
    subject: subject ?? '',
    commonNames: name === undefined ? [] : [name],
    dnsNames: (names ?? []).map(canonicalName),
    fingerprint: (print ?? '').replaceAll(':', '').toLowerCase(),
    isTrusted: () => tls?.trusted !== false,
  };
}

export function requestOf({ sni, http = {} }: ConnectionFacts): RequestFacts {
  const { method = 'GET', host, path = '/', query, headers = {} } = http;
  const pairs = Object.entries(query ?? {}).flatMap(([key, values]) =>
    values.map((value) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`),
  );
  return {
    method,
    host: canonicalName((host ?? sni ?? '').replace(/:\d+$/, '')),
    path,
    query: pairs.length === 0 ? null : pairs.join('&'),
    headers: Object.entries(headers).flatMap(([name, values]) =>
      values.map((value) => [name.toLowerCase(), value] as const),
    ),
  };
}
