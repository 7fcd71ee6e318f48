import { X509Certificate } from 'node:crypto';
import { type Certificate, readCertificate } from './certificate.js';

/** The file in which Debian and related systems store their trusted root certificates. */
export const SYSTEM_FILE = '/etc/ssl/certs/ca-certificates.crt';

/**
 * A set of trust anchors: certificates that Weir trusts without a signature of another certificate. The
 * constructor skips certificates that Weir cannot read.
 */
export class TrustAnchors {
  readonly #bySubject = new Map<string, Certificate[]>();

  constructor(pems: readonly string[]) {
    for (const pem of pems) {
      const anchor = readAnchor(pem);
      if (anchor === null) continue;
      const namesakes = this.#bySubject.get(anchor.subject.key);
      if (namesakes === undefined) this.#bySubject.set(anchor.subject.key, [anchor]);
      else namesakes.push(anchor);
    }
  }

  get isEmpty(): boolean {
    return this.#bySubject.size === 0;
  }

  /** Returns the anchors whose subject equals the issuer of the certificate. */
  issuersOf({ issuer }: Certificate): readonly Certificate[] {
    return this.#bySubject.get(issuer.key) ?? [];
  }

  includes({ subject, x509 }: Certificate): boolean {
    const namesakes = this.#bySubject.get(subject.key) ?? [];
    return namesakes.some((anchor) => anchor.x509.raw.equals(x509.raw));
  }
}

function readAnchor(pem: string): Certificate | null {
  try {
    return readCertificate(new X509Certificate(pem).raw);
  } catch {
    return null;
  }
}

/** Returns the trust anchors for all certificates in the text of a PEM file. */
export function anchorsIn(pem: string): TrustAnchors {
  return new TrustAnchors(pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []);
}

const ofLists = new WeakMap<readonly string[], TrustAnchors>();

/**
 * Returns the trust anchors for the PEM texts of a policy. The function caches its result for each array
 * object `pems`, because a policy never changes these arrays.
 */
export function anchorsOf(pems: readonly string[]): TrustAnchors {
  const known = ofLists.get(pems);
  if (known !== undefined) return known;
  const anchors = new TrustAnchors(pems);
  ofLists.set(pems, anchors);
  return anchors;
}
