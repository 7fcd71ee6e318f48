import { createPrivateKey, X509Certificate } from 'node:crypto';
import { statSync } from 'node:fs';
import type { NextIdentity } from '#cluster/peers/peer-certificate.js';
import type { PeerIdentity } from '#cluster/peers/peer-identity.js';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';
import { writeDurably } from '#store/disk/durable-file.js';

/** The time in milliseconds for which a node uses a certificate that it has made. */
const LIFETIME_MS = 24 * 3_600_000;

/**
 * The key and the self-signed certificate with which a node authenticates to the other nodes. They are
 * replaced each day. A file keeps them over a restart: while etcd is not reachable, other nodes accept only
 * the certificate that they know.
 */
export class OwnIdentity {
  readonly #id: string;
  readonly #file: string;
  readonly #kept: PeerIdentity | null;
  #madeMs: number;

  constructor(id: string, file: string) {
    this.#id = id;
    this.#file = file;
    const kept = read(file);
    this.#kept = kept?.identity ?? null;
    this.#madeMs = kept?.madeMs ?? Date.now();
  }

  /**
   * Returns the identity to use. If `present` is null, returns the stored identity, or a new one if there is
   * none. Otherwise returns `present`, or a new identity if `present` is older than a day.
   */
  readonly next: NextIdentity = (present) => {
    if (present === null && this.#kept !== null) return this.#kept;
    if (present !== null && Date.now() - this.#madeMs < LIFETIME_MS) return present;
    return { ...selfSigned(this.#id), ca: null };
  };

  /** Stores the identity that the node uses from now on. Rejects if it cannot be written to the disk. */
  async keep(identity: PeerIdentity): Promise<void> {
    if (identity === this.#kept) return;
    this.#madeMs = Date.now();
    await writeDurably(this.#file, String(identity.cert) + String(identity.key));
  }
}

/**
 * Returns the stored identity and the time when it was made, or null if the file does not contain a usable
 * identity.
 */
function read(file: string): { readonly identity: PeerIdentity; readonly madeMs: number } | null {
  try {
    const pem = readBoundedSync(file, MAX_BYTES.secret);
    if (!new X509Certificate(pem).checkPrivateKey(createPrivateKey(pem))) return null;
    return { identity: { cert: pem, key: pem, ca: null }, madeMs: statSync(file).mtimeMs };
  } catch {
    return null;
  }
}
