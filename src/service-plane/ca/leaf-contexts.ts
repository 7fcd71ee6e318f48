import { constants, createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import { createSecureContext, DEFAULT_CIPHERS, type SecureContext } from 'node:tls';
import { LRUCache } from 'lru-cache';
import { type InterceptCa, shownChainOf } from './intercept-ca.js';
import { createLeafMint, type LeafMint } from './leaf-mint.js';

export type LeafContextOptions = {
  /**
   * 48 random bytes that encrypt TLS session tickets. All threads that serve the same clients need equal
   * bytes, so that a client can resume a session in any of these threads.
   */
  readonly ticketKeys: Buffer;
  /**
   * The maximum number of cached names. Above this number, the cache removes the least recently used name.
   */
  readonly capacity?: number;
  readonly now?: () => Date;
};

type CachedContext = { readonly context: SecureContext; readonly renewAtMs: number };

const CAPACITY = 4096;
/**
 * The preferred cipher suite of TLS 1.3. Its handshake costs less CPU time than the handshake of Node's
 * default suite, because processors accelerate SHA-256, but rarely SHA-384.
 */
const CHEAPEST = 'TLS_AES_128_GCM_SHA256';
const CIPHERS = [CHEAPEST, ...DEFAULT_CIPHERS.split(':').filter((cipher) => cipher !== CHEAPEST)].join(':');

/**
 * A cache of TLS contexts by host name. Each context contains the leaf certificate that intercepted clients
 * receive for this name.
 */
export class LeafContexts {
  readonly #options: LeafContextOptions;
  readonly #key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  readonly #keyPem = this.#key.export({ type: 'pkcs8', format: 'pem' });
  readonly #contexts: LRUCache<string, CachedContext>;
  #signing: { readonly ca: InterceptCa; readonly mint: LeafMint; readonly chainPem: string } | null = null;

  constructor(options: LeafContextOptions) {
    this.#options = options;
    this.#contexts = new LRUCache({ max: options.capacity ?? CAPACITY });
  }

  get size(): number {
    return this.#contexts.size;
  }

  /**
   * Sets the CA that signs new leaf certificates; with null, `of` returns null. Existing connections keep
   * their certificates.
   */
  use(ca: InterceptCa | null): void {
    this.#signing = ca === null ? null : { ca, mint: createLeafMint(ca, this.#key), chainPem: shownChainOf(ca) };
    this.#contexts.clear();
  }

  /**
   * Returns the TLS context for `name`: a host name in lower case, or the server's IPv4 address if the client
   * sent no server name. Returns null if there is no CA, or if the CA is not valid now.
   */
  of(name: string): SecureContext | null {
    const now = this.#options.now?.() ?? new Date();
    const kept = this.#contexts.get(name);
    if (kept !== undefined && now.getTime() < kept.renewAtMs) return kept.context;
    if (this.#signing === null) return null;
    const { ca, mint, chainPem } = this.#signing;
    if (now < ca.notBefore || now >= ca.notAfter) return null;
    const { certPem, notAfter } = mint(name, now);
    const context = this.#contextOf(certPem + chainPem, `${ca.fingerprint} ${name}`);
    this.#contexts.set(name, { context, renewAtMs: (now.getTime() + notAfter.getTime()) / 2 });
    return context;
  }

  #contextOf(cert: string, session: string): SecureContext {
    const context = createSecureContext({
      key: this.#keyPem,
      cert,
      minVersion: 'TLSv1.2',
      ciphers: CIPHERS,
      honorCipherOrder: true,
      // Use ChaCha20 if the client prefers it: such a client usually has no AES instructions.
      secureOptions: constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_PRIORITIZE_CHACHA,
      // A session is valid for one name and one CA: OpenSSL resumes a session only in a context with the same
      // session id context. A session id context has at most 32 bytes.
      sessionIdContext: createHash('sha256').update(session).digest('hex').slice(0, 32),
    });
    sealTickets(context, this.#options.ticketKeys);
    return context;
  }
}

const PART = 16;
const REFUSED = 0;
const TAKEN = 1;
const TAKEN_AND_RENEWED = 2;

/**
 * Members of Node's native SecureContext that Node's type definitions lack. OpenSSL calls
 * `onticketkeycallback` for each TLS session ticket. The result contains a code (reject, accept, or accept
 * and renew the ticket), the keys of HMAC-SHA256 and AES-128, and for a new ticket the name of the keys and
 * an IV.
 */
type Native = {
  enableTicketKeyCallback(): void;
  onticketkeycallback: (
    name: Buffer,
    iv: Buffer,
    isNew: boolean,
  ) => readonly [verdict: number, hmac: Buffer, aes: Buffer, name?: Buffer, iv?: Buffer];
};

/**
 * Encrypts session tickets with the 48 bytes of `keys`, and sends a new ticket for each accepted ticket. A
 * client should use a TLS 1.3 ticket only once (RFC 8446, C.4). Without this callback, Node sends no new
 * ticket on a resumed connection, so every second connection would make a full handshake.
 */
function sealTickets({ context }: SecureContext, keys: Buffer): void {
  const native = context as Native;
  const [name, hmac, aes] = [0, 1, 2].map((part) => keys.subarray(part * PART, (part + 1) * PART)) as [
    Buffer,
    Buffer,
    Buffer,
  ];
  native.onticketkeycallback = (given, _iv, isNew) => {
    if (isNew) return [TAKEN, hmac, aes, name, randomBytes(PART)];
    return [name.equals(given) ? TAKEN_AND_RENEWED : REFUSED, hmac, aes];
  };
  native.enableTicketKeyCallback();
}
