import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { type Certificate, readCertificate } from './certificate.js';

/** Where Debian and related systems store their trusted roots. */
export const SYSTEM_FILE = '/etc/ssl/certs/ca-certificates.crt';

/** Certificates that are trusted by themselves. Unreadable ones are skipped. */
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

  /** The anchors whose subject is the certificate's issuer. */
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
 * The roots of the system: the bundle of its operator or, without one, Node's own list. Never both: a root
 * that the operator removed must not be trusted. Read once.
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

/** The lists of a policy never change, so anchors are cached by list. */
export function anchorsOf(pems: readonly string[]): TrustAnchors {
  const known = ofLists.get(pems);
  if (known !== undefined) return known;
  const anchors = new TrustAnchors(pems);
  ofLists.set(pems, anchors);
  return anchors;
}
