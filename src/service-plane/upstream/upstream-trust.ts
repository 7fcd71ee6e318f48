import { constants, X509Certificate } from 'node:crypto';
import { existsSync, statSync } from 'node:fs';
import {
  type ConnectionOptions,
  createSecureContext,
  DEFAULT_CIPHERS,
  type PeerCertificate,
  rootCertificates,
  type SecureContext,
} from 'node:tls';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { withPath } from '#files/system-failure.js';
import { anchorsIn, SYSTEM_FILE, TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import { Untrusted } from './untrusted-reason.js';

/** Decides which server certificates a node trusts. */
export type UpstreamTrust = {
  /**
   * Returns the TLS options for a connection to the server `name` at the IPv4 address `address`. If `name` is
   * null, the client sent no server name, and the certificate must be valid for the address.
   */
  connection(name: string | null, address: string): ConnectionOptions;
  /** Returns the CA certificates against which rules verify the chain of a server (D22a). */
  anchors(): TrustAnchors;
  /**
   * Returns why Weir cannot read the PEM file now; null: no fault. During a fault, the certificates that Weir
   * read last stay in use.
   */
  fault(): string | null;
};

export type UpstreamTrustOptions = {
  /** The setting `service_plane.upstream_ca`: `system`, or the path of a PEM file. */
  readonly source: string;
  readonly systemFile?: string;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly nowMs?: () => number;
};

const LOOK_AGAIN_MS = 1_000;
/**
 * Security level 2 of OpenSSL: at least 112 bits of security. No certificate of the chain may use SHA-1, or
 * RSA with less than 2048 bits.
 */
const CIPHERS = `${DEFAULT_CIPHERS}:@SECLEVEL=2`;

/**
 * Reads the trusted CA certificates from the file, and again after a change of the file. Each call of a
 * method checks the file for a change, but at most one call a second does.
 * @throws Error if the given file cannot be read, or contains no certificate.
 */
export function createUpstreamTrust(options: UpstreamTrustOptions): UpstreamTrust {
  const { source, systemFile = SYSTEM_FILE, nowMs = () => performance.now() } = options;
  const file = source !== 'system' ? source : existsSync(systemFile) ? systemFile : null;
  let stamp = file === null ? '' : stampOf(file);
  let authorities = file === null ? rootCertificates : authoritiesIn(file);
  let context = contextOf(authorities);
  let anchors: TrustAnchors | null = null;
  let fault: string | null = null;
  let lookAtMs = nowMs() + LOOK_AGAIN_MS;

  const look = (): void => {
    if (file === null || nowMs() < lookAtMs) return;
    lookAtMs = nowMs() + LOOK_AGAIN_MS;
    try {
      const found = stampOf(file);
      if (found !== stamp) {
        authorities = authoritiesIn(file);
        context = contextOf(authorities);
        anchors = null;
      }
      stamp = found;
      fault = null;
    } catch (failure) {
      fault = failure instanceof Error ? failure.message : String(failure);
    }
  };
  return {
    connection(name, address) {
      look();
      return {
        secureContext: context,
        servername: name ?? '',
        rejectUnauthorized: true,
        checkServerIdentity: (_host, certificate) => identityFault(name, address, certificate),
      };
    },
    anchors() {
      look();
      anchors ??= typeof authorities === 'string' ? anchorsIn(authorities) : new TrustAnchors(authorities);
      return anchors;
    },
    fault: () => {
      look();
      return fault;
    },
  };
}

function contextOf(authorities: string | readonly string[]): SecureContext {
  return createSecureContext({
    ca: typeof authorities === 'string' ? authorities : [...authorities],
    minVersion: 'TLSv1.2',
    ciphers: CIPHERS,
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
  });
}

function authoritiesIn(path: string): string {
  const pem = readBoundedSync(path, MAX_BYTES.certificates).toString();
  // Check this, because Node uses its own list of root certificates if `ca` contains no certificate.
  if (!isCertificate(pem)) throw new Error(`read ${path}: the file contains no readable PEM certificate`);
  return pem;
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0;
  } catch {
    return false;
  }
}

function stampOf(path: string): string {
  try {
    const { mtimeMs, ino, size } = statSync(path);
    return `${mtimeMs} ${ino} ${size}`;
  } catch (failure) {
    throw withPath(path, failure);
  }
}

/**
 * Checks the name in the certificate by RFC 9525: only subject alternative names count, and a wildcard must
 * be a whole label.
 */
function identityFault(name: string | null, address: string, { raw }: PeerCertificate): Error | undefined {
  const certificate = new X509Certificate(raw);
  if (certificate.subjectAltName === undefined)
    return new Untrusted('no_names', 'the certificate has no alternative names');
  const found =
    name === null
      ? certificate.checkIP(address)
      : certificate.checkHost(name, { subject: 'never', partialWildcards: false });
  return found === undefined ? new Untrusted('wrong_name', `the certificate is not for ${name ?? address}`) : undefined;
}
