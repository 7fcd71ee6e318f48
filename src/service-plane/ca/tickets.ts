import { randomBytes } from 'node:crypto';
import type { SecureContext } from 'node:tls';

const PART = 16;
const REFUSED = 0;
const TAKEN = 1;
const TAKEN_AND_RENEWED = 2;

/**
 * Methods of Node's native SecureContext that Node's types lack. The callback returns what OpenSSL does with
 * the ticket, the key of HMAC-SHA256, and the key of AES-128. For a new ticket, the callback also returns the
 * name of the keys and an IV.
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
 * client uses a TLS 1.3 ticket only once (RFC 8446, C.4). Without this callback, Node sends no new ticket on
 * a resumed connection, so every second connection would make a full handshake.
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
