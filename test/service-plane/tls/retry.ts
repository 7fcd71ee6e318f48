import { extension, u8, u16, vector8, vector16 } from './hello-bytes.js';

const RANDOM = Buffer.from('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 'hex');

/**
 * Returns the body of a HelloRetryRequest with `extensions`, after a supported_versions extension for TLS
 * 1.3.
 */
export const retryOf = (...extensions: readonly Uint8Array[]): Buffer =>
  Buffer.concat([
    u16(0x0303),
    RANDOM,
    vector8(Buffer.alloc(32, 0x53)),
    u16(0x1301),
    u8(0),
    vector16(extension(43, u16(0x0304)), ...extensions),
  ]);

/** The body of a HelloRetryRequest that requests a key share for P-384. */
export const RETRY = retryOf(extension(51, u16(24)));
