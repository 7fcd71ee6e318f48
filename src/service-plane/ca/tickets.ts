import { randomBytes } from 'node:crypto';
import type { SecureContext } from 'node:tls';

const PART = 16;
const REFUSED = 0;
const TAKEN = 1;
const TAKEN_AND_RENEWED = 2;

/**
 * Members of Node's native SecureContext that Node's type definitions lack. The callback returns a code that
 * tells OpenSSL whether to accept or renew a ticket. The callback also returns the keys of HMAC-SHA256 and
 * AES-128 and, for a new ticket, the name of the keys and an IV.
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
export function sealTickets({ context }: SecureContext, keys: Buffer): void {
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
