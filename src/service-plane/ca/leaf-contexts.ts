import { constants, createHash, generateKeyPairSync } from 'node:crypto';
import { createSecureContext, DEFAULT_CIPHERS, type SecureContext } from 'node:tls';
import { LRUCache } from 'lru-cache';
import { type InterceptCa, shownChainOf } from './intercept-ca.js';
import { createLeafMint, type LeafMint } from './leaf-mint.js';
import { sealTickets } from './tickets.js';

export type LeafContextOptions = {
  /**
   * 48 random bytes, the same in every thread that serves the same clients: a session that one began is resumed by
   * another.
   */
  readonly ticketKeys: Buffer;
  /** How many names are kept; the least recently used goes first. */
  readonly capacity?: number;
  readonly now?: () => Date;
};

type ReplayBuffer = { readonly context: SecureContext; readonly renewAtMs: number };

const CAPACITY = 4096;
/** The handshake hashes with SHA-256 then, which processors have instructions for, and not with SHA-384. */
const CHEAPEST = 'TLS_AES_128_GCM_SHA256';
const CIPHERS = [CHEAPEST, ...DEFAULT_CIPHERS.split(':').filter((cipher) => cipher !== CHEAPEST)].join(':');

/** TLS contexts by name: what an intercepted client is shown. */
export class LeafContexts {
  readonly #options: LeafContextOptions;
  readonly #key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  readonly #keyPem = this.#key.export({ type: 'pkcs8', format: 'pem' });
  readonly #kept: LRUCache<string, ReplayBuffer>;
  #signing: { readonly ca: InterceptCa; readonly mint: LeafMint; readonly chainPem: string } | null = null;

  constructor(options: LeafContextOptions) {
    this.#options = options;
    this.#kept = new LRUCache({ max: options.capacity ?? CAPACITY });
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Who signs from now on; connections that have begun keep what they were shown. */
  use(ca: InterceptCa | null): void {
    this.#signing = ca === null ? null : { ca, mint: createLeafMint(ca, this.#key), chainPem: shownChainOf(ca) };
    this.#kept.clear();
  }

  /**
   * Of a host name in lower case, or of an IPv4 address where the client names no host. Null while there is no CA, or
   * none that is valid now.
   */
  of(name: string): SecureContext | null {
    const now = this.#options.now?.() ?? new Date();
    const kept = this.#kept.get(name);
    if (kept !== undefined && now.getTime() < kept.renewAtMs) return kept.context;
    if (this.#signing === null) return null;
    const { ca, mint, chainPem } = this.#signing;
    if (now < ca.notBefore || now >= ca.notAfter) return null;
    const { certPem, notAfter } = mint(name, now);
    const context = this.#contextOf(certPem + chainPem, `${ca.fingerprint} ${name}`);
    this.#kept.set(name, { context, renewAtMs: (now.getTime() + notAfter.getTime()) / 2 });
    return context;
  }

  #contextOf(cert: string, session: string): SecureContext {
    const context = createSecureContext({
      key: this.#keyPem,
      cert,
      minVersion: 'TLSv1.2',
      ciphers: CIPHERS,
      honorCipherOrder: true,
      // Whoever would rather have ChaCha20 has no instructions for AES.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_PRIORITIZE_CHACHA,
      // A session counts for one name and one CA: OpenSSL resumes only what has the same id, of 32 bytes at most.
      sessionIdContext: createHash('sha256').update(session).digest('hex').slice(0, 32),
    });
    sealTickets(context, this.#options.ticketKeys);
    return context;
  }
}
