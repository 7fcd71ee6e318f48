import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
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

let system: TrustAnchors | undefined;

/**
 * Returns the root certificates of the system: the certificates in `SYSTEM_FILE`, or Node's own list if that
 * file contains none. Reads the file only once. The two lists are not combined, because a root that the
 * operator removed must not be trusted.
 */
export function systemAnchors(): TrustAnchors {
  system ??= readSystemAnchors();
  return system;
}

function readSystemAnchors(): TrustAnchors {
  const text = existsSync(SYSTEM_FILE) ? readFileSync(SYSTEM_FILE, 'latin1') : '';
  const bundle = new TrustAnchors(text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []);
  return bundle.isEmpty ? new TrustAnchors(rootCertificates) : bundle;
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
