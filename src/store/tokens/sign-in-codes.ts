import { randomBytes } from 'node:crypto';
import type { TokenId } from './token-verdict.js';

/** How long a code can be redeemed, in milliseconds. */
const LIFETIME_MS = 60_000;
/** How many codes of one token can be redeemed at the same time. */
const MOST_PER_TOKEN = 10;

type Code = { readonly token: TokenId; readonly expiresMs: number };

/**
 * The one-time codes of sign-in links. A code starts one session of the API token whose client requested the
 * code. Codes are stored only in memory, so a restart of the node invalidates them.
 */
export class SignInCodes {
  readonly #codes = new Map<string, Code>();
  readonly #now: () => Date;

  constructor(now: () => Date) {
    this.#now = now;
  }

  /**
   * Returns a new code: 32 random bytes in base64url. If the token has more than 10 codes, its oldest code
   * becomes invalid.
   */
  issue(token: TokenId): { readonly code: string; readonly expiresAt: Date } {
    const nowMs = this.#now().getTime();
    for (const [code, { expiresMs }] of this.#codes) if (expiresMs <= nowMs) this.#codes.delete(code);
    const [oldest, ...others] = [...this.#codes].filter(([, of]) => of.token.id === token.id);
    if (oldest !== undefined && others.length >= MOST_PER_TOKEN - 1) this.#codes.delete(oldest[0]);
    const code = randomBytes(32).toString('base64url');
    const expiresMs = nowMs + LIFETIME_MS;
    this.#codes.set(code, { token, expiresMs });
    return { code, expiresAt: new Date(expiresMs) };
  }

  /** Invalidates a code and returns its token; null if the code is unknown, already used, or expired. */
  redeem(code: string): TokenId | null {
    const found = this.#codes.get(code);
    this.#codes.delete(code);
    return found === undefined || found.expiresMs <= this.#now().getTime() ? null : found.token;
  }
}
