/**
 * Why Weir does not trust a server certificate. Do not rename the reasons, because findings and metrics
 * contain them.
 */
export type UntrustedReason =
  | 'expired'
  | 'not_yet_valid'
  | 'wrong_name'
  | 'no_names'
  | 'self_signed'
  | 'unknown_issuer'
  | 'bad_signature'
  | 'weak_signature'
  | 'weak_key'
  | 'wrong_purpose'
  | 'not_a_ca'
  | 'path_too_long'
  | 'name_not_permitted'
  | 'revoked'
  | 'unreadable'
  | 'other';

/** The reason for each error code that Node derives from an error of OpenSSL. */
const BY_CODE: Readonly<Record<string, UntrustedReason>> = {
  CERT_HAS_EXPIRED: 'expired',
  CERT_NOT_YET_VALID: 'not_yet_valid',
  ERR_TLS_CERT_ALTNAME_INVALID: 'wrong_name',
  HOSTNAME_MISMATCH: 'wrong_name',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'self_signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'unknown_issuer',
  UNABLE_TO_GET_ISSUER_CERT: 'unknown_issuer',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'unknown_issuer',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'unknown_issuer',
  CERT_UNTRUSTED: 'unknown_issuer',
  CERT_SIGNATURE_FAILURE: 'bad_signature',
  UNABLE_TO_DECRYPT_CERT_SIGNATURE: 'bad_signature',
  INVALID_PURPOSE: 'wrong_purpose',
  INVALID_CA: 'not_a_ca',
  PATH_LENGTH_EXCEEDED: 'path_too_long',
  CERT_CHAIN_TOO_LONG: 'path_too_long',
  CERT_REVOKED: 'revoked',
  CERT_REJECTED: 'other',
  ERROR_IN_CERT_NOT_BEFORE_FIELD: 'unreadable',
  ERROR_IN_CERT_NOT_AFTER_FIELD: 'unreadable',
  UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY: 'unreadable',
};

/**
 * The reason for errors whose code is only `UNSPECIFIED`, by a regular expression that matches OpenSSL's
 * error message.
 */
const BY_SENTENCE: readonly (readonly [RegExp, UntrustedReason])[] = [
  [/digest algorithm too weak/i, 'weak_signature'],
  [/key too weak/i, 'weak_key'],
  [/subtree violation|name constraint/i, 'name_not_permitted'],
  [/certificate purpose/i, 'wrong_purpose'],
  [/invalid CA|key usage/i, 'not_a_ca'],
  [/path length/i, 'path_too_long'],
];

/**
 * Returns why the certificate is not trusted, from an error of a TLS handshake; null if the error does not
 * concern a certificate.
 */
export function untrustedReason(failure: unknown): UntrustedReason | null {
  if (failure instanceof Untrusted) return failure.reason;
  if (!(failure instanceof Error) || !('code' in failure)) return null;
  const code = String(failure.code);
  const known = BY_CODE[code];
  if (known !== undefined) return known;
  if (code === 'UNSPECIFIED') return BY_SENTENCE.find(([sentence]) => sentence.test(failure.message))?.[1] ?? 'other';
  return null;
}

/** The error for a certificate that OpenSSL accepts, but Weir rejects. */
export class Untrusted extends Error {
  override readonly name = 'Untrusted';
  constructor(
    readonly reason: UntrustedReason,
    message: string,
  ) {
    super(message);
  }
}
