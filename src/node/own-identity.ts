import { createPrivateKey, X509Certificate } from 'node:crypto';
import { statSync } from 'node:fs';
import type { NextIdentity } from '#cluster/peers/peer-certificate.js';
import type { PeerIdentity } from '#cluster/peers/peer-identity.js';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { selfSigned } from '#service-plane/ca/self-signed.js';
import { writeDurably } from '#store/durable-file.js';

/** How long a node uses a certificate that it has made. */
const LIFETIME_MS = 24 * 3_600_000;

/**
 * A key and a self-signed certificate of a node towards other nodes, and new ones each day. They are kept in
 * a file: while etcd is away, the other nodes know a node that was started anew only by its former
 * certificate.
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

  /** Returns the kept identity at the start. Later it returns `present`, or after a day a new identity. */
  readonly next: NextIdentity = (present) => {
    if (present === null && this.#kept !== null) return this.#kept;
    if (present !== null && Date.now() - this.#madeMs < LIFETIME_MS) return present;
    return { ...selfSigned(this.#id), ca: null };
  };

  /** Keeps an identity that the node uses from now on. Rejects if the disk refuses it. */
  async keep(identity: PeerIdentity): Promise<void> {
    if (identity === this.#kept) return;
    this.#madeMs = Date.now();
    await writeDurably(this.#file, String(identity.cert) + String(identity.key));
  }
}

/** Returns the kept identity and the time when it was made; null if the file does not have a usable one. */
function read(file: string): { readonly identity: PeerIdentity; readonly madeMs: number } | null {
  try {
    const pem = readBoundedSync(file, MAX_BYTES.secret);
    if (!new X509Certificate(pem).checkPrivateKey(createPrivateKey(pem))) return null;
    return { identity: { cert: pem, key: pem, ca: null }, madeMs: statSync(file).mtimeMs };
  } catch {
    return null;
  }
}
