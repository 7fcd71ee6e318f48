import { Cursor } from './tls-cursor.js';

/**
 * Returns copies of the certificates in a Certificate message of TLS 1.2 or earlier (RFC 5246, 7.4.2), leaf
 * first. Returns null if the message is malformed.
 */
export function readCertificateMessage(body: Uint8Array): readonly Uint8Array[] | null {
  const message = new Cursor(body);
  const list = message.vector(3);
  if (!message.isSpent) return null;
  const ders: Uint8Array[] = [];
  while (list.left > 0) {
    const der = list.vector(3).rest();
    if (der.length === 0) return null;
    ders.push(der.slice());
  }
  return list.isSpent ? ders : null;
}
