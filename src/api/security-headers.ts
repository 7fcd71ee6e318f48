/**
 * Headers of all responses of API routes, including errors. Responses of `connections/client-error.ts` have
 * their own headers. A route can set its own value of a header, as that of the console does.
 */
export const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
} as const;
