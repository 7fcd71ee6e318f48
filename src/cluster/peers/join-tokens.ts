import { createHash, randomBytes } from 'node:crypto';

/** The content of a join token: the node that issued it, and a secret. */
export type JoinToken = {
  /** The address of the peer listener of the issuing node. */
  readonly address: string;
  /** The fingerprint of the certificate of the issuing node. */
  readonly fingerprint: string;
  readonly secret: string;
};

/**
 * Everything that a node needs to join the cluster: the addresses and credentials of etcd, and the secrets
 * that all nodes share. A file is represented by its content.
 */
export type ClusterAccess = {
  readonly prefix: string;
  readonly endpoints: readonly string[];
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string } | null;
  readonly user: { readonly name: string; readonly password: string } | null;
  /** The content of `cluster.seal_key_file`; null without it. */
  readonly sealKey: string | null;
};

const PREFIX = 'weir-join.';
const LIFETIME_MS = 3_600_000;
const SECRET_BYTES = 32;

export function encodeJoinToken({ address, fingerprint, secret }: JoinToken): string {
  return PREFIX + Buffer.from(JSON.stringify([address, fingerprint, secret])).toString('base64url');
}

/** Decodes a join token. Returns null if the text is not a join token. */
export function readJoinToken(text: string): JoinToken | null {
  if (!text.startsWith(PREFIX)) return null;
  try {
    const parts: unknown = JSON.parse(Buffer.from(text.slice(PREFIX.length), 'base64url').toString());
    if (!Array.isArray(parts) || parts.length !== 3 || parts.some((part) => typeof part !== 'string')) return null;
    const [address, fingerprint, secret] = parts as [string, string, string];
    return { address, fingerprint, secret };
  } catch {
    return null;
  }
}

/**
 * The join tokens that this node has issued. A token is valid for one hour and for one node. Tokens are only
 * in memory, so a restart of the node invalidates them.
 */
export class JoinTokens {
  /**
   * Maps the hash of the secret of each token to the time when the token expires, in milliseconds since 1970.
   */
  readonly #valid = new Map<string, number>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  issue(): { readonly secret: string; readonly expiresAt: Date } {
    this.#removeExpired();
    const secret = randomBytes(SECRET_BYTES).toString('base64url');
    const expires = this.#now() + LIFETIME_MS;
    this.#valid.set(hashOf(secret), expires);
    return { secret, expiresAt: new Date(expires) };
  }

  get isAnyValid(): boolean {
    this.#removeExpired();
    return this.#valid.size > 0;
  }

  isValid(secret: string): boolean {
    this.#removeExpired();
    return this.#valid.has(hashOf(secret));
  }

  /** Returns whether a secret belongs to a valid token. The token is invalid afterwards. */
  redeem(secret: string): boolean {
    this.#removeExpired();
    return this.#valid.delete(hashOf(secret));
  }

  #removeExpired(): void {
    for (const [hash, expires] of this.#valid) if (expires <= this.#now()) this.#valid.delete(hash);
  }
}

const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex');
