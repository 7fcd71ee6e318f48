import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { formatAddress } from '#addresses/ip-address.js';
import type { DecidedHit, GrantAnswer, GrantRequest, HitsMessage } from '#contracts/datapath/grant-messages.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { opened } from './opened.js';

type Grant = { readonly pattern: string; readonly addresses: Address[]; readonly expiryNs: number };

/** A fake datapath thread that replies to grant requests of the DNS proxy as a test specifies. */
export class FakeGrantReceiver {
  /** All requested grants, in order of arrival. */
  readonly asked: Grant[] = [];
  /** The hits that the DNS proxy has reported, in order of arrival. */
  readonly hits: DecidedHit[] = [];
  /**
   * The reply to a grant request: the number of refused addresses, null if no address was granted, or
   * 'nothing' for no reply.
   */
  reply: number | null | 'nothing' = 0;
  readonly port: MessagePort;
  readonly #own: MessagePort;
  readonly #held: number[] = [];

  constructor() {
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    this.#own = port2;
    port2.on('message', (message: GrantRequest | HitsMessage) => {
      if ('hits' in message) {
        this.hits.push(...message.hits);
        return;
      }
      const { id, ...rows } = message;
      this.asked.push(...grantsOf(rows));
      if (this.reply === 'nothing') this.#held.push(id);
      else this.#answer(id, this.reply);
    });
    opened(async () => port2.close());
  }

  /**
   * The requested grants, each as a text of pattern and addresses without expiry:
   * `*.test 192.0.2.1 192.0.2.2`.
   */
  get grants(): readonly string[] {
    return this.asked.map(({ pattern, addresses }) => [pattern, ...addresses.map(formatAddress)].join(' '));
  }

  /**
   * Sends the replies that were held back while `reply` was 'nothing'. `refused` is the number of refused
   * addresses in each reply.
   */
  release(refused: number | null): void {
    for (const id of this.#held.splice(0)) this.#answer(id, refused);
  }

  close(): void {
    this.#own.close();
  }

  #answer(id: number, refused: number | null): void {
    this.#own.postMessage({ id, refused } satisfies GrantAnswer);
  }
}

/** Joins consecutive rows with the same pattern and the same expiry to one grant. */
function grantsOf({ patterns, addresses, expiriesNs }: Omit<GrantRequest, 'id'>): Grant[] {
  const grants: Grant[] = [];
  for (const [row, pattern] of patterns.entries()) {
    const [address = 0, expiryNs = 0] = [addresses[row], expiriesNs[row]];
    const last = grants.at(-1);
    if (last?.pattern === pattern && last.expiryNs === expiryNs && !last.addresses.includes(address)) {
      last.addresses.push(address);
    } else grants.push({ pattern, addresses: [address], expiryNs });
  }
  return grants;
}
