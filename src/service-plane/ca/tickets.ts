import { randomBytes } from 'node:crypto';
import type { SecureContext } from 'node:tls';

const PART = 16;
const REFUSED = 0;
const TAKEN = 1;
const TAKEN_AND_RENEWED = 2;

/**
 * Missing from Node's types. The callback returns the fate of the ticket, and the keys of HMAC-SHA256 and
 * AES-128. For a new ticket it also returns the key name and an IV.
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
 * Encrypts session tickets with these 48 bytes, and renews each accepted ticket. Clients use a TLS 1.3 ticket
 * once (RFC 8446, C.4), and Node by itself sends no new ticket on a resumed connection: every second
 * connection would be a full handshake.
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
