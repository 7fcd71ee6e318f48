/**
 * Headers of all responses that routes of the API send, with errors included. The responses in
 * `connections/client-error.ts` have headers of their own.
 */
export const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
} as const;
