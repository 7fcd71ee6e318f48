import type { TokenRecord } from '#store/store-types.js';

/** The signature algorithm and the issuer of all tokens and sessions. */
export const ALGORITHM = 'EdDSA';
export const ISSUER = 'weir';

/** The ids of a token and of its signing key. `keyId`: null for a token of an older build of this node. */
export type TokenId = { readonly id: string; readonly keyId: string | null };

/** The identity of an API client: the id, subject and role of its token. */
export type TokenIdentity = TokenId & Pick<TokenRecord, 'subject' | 'role'>;

/** Why a token is rejected. `unknown`: the signature is valid, but the store has no record of the token. */
export type TokenRefusal =
  | 'missing'
  | 'malformed'
  | 'wrong_algorithm'
  | 'bad_signature'
  | 'expired'
  | 'revoked'
  | 'unknown';

export type TokenVerdict =
  | { readonly kind: 'accepted'; readonly identity: TokenIdentity }
  | { readonly kind: 'refused'; readonly reason: TokenRefusal };
