import type { Warning } from '#contracts/policy/policy-problem.js';

const WARNS_BEFORE_MS = 86_400_000;

/** Returns a warning if a token of a service account expires within a day, or has expired. */
export function expiryWarnings(token: string, nowMs: number): readonly Warning[] {
  const expiryMs = expiryOf(token);
  if (expiryMs === null || expiryMs > nowMs + WARNS_BEFORE_MS) return [];
  const code = expiryMs <= nowMs ? 'token_expired' : 'token_expires';
  const at = new Date(expiryMs).toISOString();
  const message =
    code === 'token_expired'
      ? `The token has expired at ${at}. Store the integration again with a new token.`
      : `The token expires at ${at}. Store the integration again with a new token before.`;
  return [{ pointer: '/service_account_token', code, message }];
}

/** Returns the claim `exp` of a JWT in milliseconds; null for a token without one. */
function expiryOf(token: string): number | null {
  const [, payload = ''] = token.split('.');
  try {
    const { exp } = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { readonly exp?: unknown };
    // The maximum time of a Date is 8.64e12 seconds.
    return typeof exp === 'number' && Math.abs(exp) <= 8.64e12 ? exp * 1_000 : null;
  } catch {
    return null;
  }
}
