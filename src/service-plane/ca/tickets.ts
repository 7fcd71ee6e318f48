import { randomBytes } from 'node:crypto';
import type { SecureContext } from 'node:tls';

const PART = 16;
const REFUSED = 0;
const TAKEN = 1;
const TAKEN_AND_RENEWED = 2;

/** Not in the types. Answers what becomes of the ticket, the keys of HMAC-SHA256 and AES-128, and for a new ticket its key's name and an IV. */
type Native = {
  enableTicketKeyCallback(): void;
  onticketkeycallback: (
    name: Buffer,
    iv: Buffer,
    isNew: boolean,
  ) => readonly [verdict: number, hmac: Buffer, aes: Buffer, name?: Buffer, iv?: Buffer];
};

/**
 * Seals tickets with these 48 bytes, and renews each that is taken: clients use a ticket of TLS 1.3 once (RFC 8446, C.4), and Node
 * by itself gives a resumed connection none, so that every other one would be a full handshake.
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
