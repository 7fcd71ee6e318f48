import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { Intact } from '#policy/document/shape.js';
import { CERTIFICATE_COMMON_NAME, CERTIFICATE_DNS_NAME, SERVER_NAME } from './hostname-validation.js';
import { validateHttp } from './http-validation.js';
import { validateTlsName } from './name-validation.js';
import type { Validation } from './validation-context.js';
import { validateAction } from './value-validation.js';

const METADATA = [
  'sni',
  'ech',
  'server_dn',
  'server_san',
  'server_cn',
  'fingerprint_sha256',
  'trust_anchors_pem',
] as const;
const OPTIONAL_LISTS: ReadonlySet<string> = new Set(['fingerprint_sha256', 'trust_anchors_pem']);

export function validateTls(tls: Intact<TlsMatchConfig>, at: string, validation: Validation): void {
  const { problems, context } = validation;
  validateMode(tls, at, validation);
  if (tls.sni !== undefined) validateTlsName(tls.sni, `${at}/sni`, SERVER_NAME, validation);
  if (tls.server_san !== undefined)
    validateTlsName(tls.server_san, `${at}/server_san`, CERTIFICATE_DNS_NAME, validation);
  if (tls.server_cn !== undefined)
    validateTlsName(tls.server_cn, `${at}/server_cn`, CERTIFICATE_COMMON_NAME, validation);
  if (tls.server_dn === '') problems.add(`${at}/server_dn`, 'empty_matcher', 'An empty name matches nothing.');
  for (const [index, digest] of (tls.fingerprint_sha256 ?? []).entries()) {
    if (digest === undefined || isFingerprint(digest)) continue;
    const message = 'A fingerprint is 64 hex digits, with or without colons between pairs.';
    problems.add(`${at}/fingerprint_sha256/${index}`, 'invalid_fingerprint', message);
  }
  for (const [index, pem] of (tls.trust_anchors_pem ?? []).entries()) {
    const fault = pem === undefined ? undefined : context.parseCertificate(pem);
    if (fault === undefined) continue;
    problems.add(`${at}/trust_anchors_pem/${index}`, 'invalid_trust_anchor', `Invalid certificate in PEM: ${fault}.`);
  }
  validateAction(tls.tls13_uninspectable, `${at}/tls13_uninspectable`, validation);
  if (tls.http !== undefined) validateHttp(tls.http, `${at}/http`, validation);
}

function validateMode(tls: Intact<TlsMatchConfig>, at: string, { problems, damaged }: Validation): void {
  if (tls.mode !== 'intercept') {
    if (tls.http !== undefined && !(tls.mode === undefined && damaged.has(tls))) {
      problems.add(`${at}/http`, 'http_needs_intercept', 'HTTP can be matched only with "mode": "intercept".');
    }
    return;
  }
  if (tls.http === undefined && !damaged.has(tls)) {
    problems.add(
      at,
      'intercept_needs_http',
      'The mode intercept requires http: without http there is nothing to match.',
    );
  }
  for (const field of METADATA) {
    const matcher = tls[field];
    const omitted = Array.isArray(matcher) && matcher.length === 0 && OPTIONAL_LISTS.has(field);
    if (matcher === undefined || omitted) continue;
    problems.add(`${at}/${field}`, 'intercept_with_metadata', `The mode intercept does not take ${field}; match http.`);
  }
}

function isFingerprint(digest: string): boolean {
  return /^[0-9A-Fa-f]{64}$/.test(digest) || /^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$/.test(digest);
}
