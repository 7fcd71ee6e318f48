import type { Certificate } from './certificate.js';
import { authorityOf, EXTENSION, KEY_USAGE, mayServe, mayUseKey } from './certificate-extensions.js';
import { hasStrongKey, isStronglySigned } from './strength.js';
import type { TrustAnchors } from './trust-anchors.js';

/**
 * The maximum number of certificates that one search visits; above this number, the search finds no path.
 * Without this limit, certificates with equal names that sign each other would make the search very long.
 */
const STEPS = 200;

/**
 * The extensions that may be critical; any other critical extension makes a path invalid. Weir accepts
 * certificate policies without an evaluation, because Weir requires no policy (RFC 5280, 6.1.1).
 */
const EVALUATED: ReadonlySet<string> = new Set([
  EXTENSION.subjectKeyIdentifier,
  EXTENSION.keyUsage,
  EXTENSION.subjectAltName,
  EXTENSION.basicConstraints,
  EXTENSION.certificatePolicies,
  EXTENSION.authorityKeyIdentifier,
  EXTENSION.extendedKeyUsage,
]);

/**
 * Returns true if a path leads from the first certificate to a trust anchor. The path may contain the other
 * certificates in any order. Every certificate on the path must be valid for a TLS server at `nowMs`. An
 * anchor need not be self-signed. A path with name constraints is rejected, because this module does not
 * evaluate them. Revocation is not checked.
 */
export function leadsTo(anchors: TrustAnchors, certificates: readonly Certificate[], nowMs: number): boolean {
  let steps = 0;
  const search = (path: readonly Certificate[]): boolean => {
    const last = path.at(-1);
    if (last === undefined || ++steps > STEPS || !holds(() => isUsable(path, nowMs))) return false;
    if (anchors.includes(last)) return true;
    if (!holds(() => isStronglySigned(last))) return false;
    const issued = (issuer: Certificate): boolean => isIssuedBy(last, issuer);
    if (anchors.issuersOf(last).some((anchor) => issued(anchor) && holds(() => isUsable([...path, anchor], nowMs)))) {
      return true;
    }
    return certificates.some((issuer) => !path.includes(issuer) && issued(issuer) && search([...path, issuer]));
  };
  return search(certificates.slice(0, 1));
}

/**
 * Returns true if the last certificate of `path` is valid at its position in the path.
 * @throws Error if an extension is unreadable.
 */
function isUsable(path: readonly Certificate[], nowMs: number): boolean {
  const last = path.at(-1) as Certificate;
  if (nowMs < last.notBeforeMs || nowMs > last.notAfterMs) return false;
  if (last.extensions.has(EXTENSION.nameConstraints) || !mayServe(last) || !hasStrongKey(last)) return false;
  for (const [oid, { isCritical }] of last.extensions) if (isCritical && !EVALUATED.has(oid)) return false;
  if (path.length === 1) {
    return mayUseKey(last, KEY_USAGE.digitalSignature | KEY_USAGE.keyEncipherment | KEY_USAGE.keyAgreement);
  }
  const authority = authorityOf(last);
  if (authority === null || !mayUseKey(last, KEY_USAGE.certSign)) return false;
  // RFC 5280, 4.2.1.9: a self-issued certificate does not count toward the path length.
  const between = path.slice(1, -1).filter(({ subject, issuer }) => subject.key !== issuer.key);
  return between.length <= authority.pathLength;
}

const signatures = new WeakMap<Certificate, WeakMap<Certificate, boolean>>();

function isIssuedBy(certificate: Certificate, issuer: Certificate): boolean {
  const known = signatures.get(certificate) ?? new WeakMap<Certificate, boolean>();
  const verified = known.get(issuer) ?? holds(() => isVerifiedBy(certificate, issuer));
  known.set(issuer, verified);
  signatures.set(certificate, known);
  return verified;
}

function isVerifiedBy({ x509, issuer }: Certificate, { x509: other, subject }: Certificate): boolean {
  return issuer.key === subject.key && x509.checkIssued(other) && x509.verify(other.publicKey);
}

/**
 * Returns the result of `condition`; false if `condition` throws. A certificate that cannot be read is not
 * trusted.
 */
function holds(condition: () => boolean): boolean {
  try {
    return condition();
  } catch {
    return false;
  }
}
