import { IncomingMessage } from 'node:http';

/**
 * The WebSocket subprotocol of each stream, by path. A client may offer no subprotocol. If a client offers
 * only other subprotocols, the server accepts the handshake without a subprotocol, and the client must then
 * fail the connection (RFC 6455, 4.1).
 */
const SUBPROTOCOLS: Readonly<Record<string, string>> = {
  '/api/v1/wiretap/stream': 'weir.wiretap.v1',
  '/api/v1/debug/statecharts/stream': 'weir.statecharts.v1',
};

/** Returns the WebSocket subprotocol of the stream at a request target; undefined for other targets. */
export const subprotocolOf = (target = ''): string | undefined => SUBPROTOCOLS[target.split('?', 1)[0] ?? ''];

/**
 * A request of which Node takes an upgrade only if the server wants it: a WebSocket at the path of a stream.
 * Node 20 takes every upgrade as soon as the server has a listener for upgrades, but a server answers a
 * request as if it had no unwanted `Upgrade` header (RFC 9110, 7.8). Node sets and reads `upgrade`; its type
 * declarations do not contain it.
 */
export class UpgradeRequest extends IncomingMessage {
  // Not a private member: the constructor of `IncomingMessage` sets `upgrade` before such members exist.
  declare private offersUpgrade: boolean;

  set upgrade(offers: boolean) {
    this.offersUpgrade = offers;
  }

  get upgrade(): boolean {
    return this.offersUpgrade && (this.method === 'CONNECT' || this.#wantsStream());
  }

  /** Whether the client offers an upgrade that the server ignores. */
  get isUnwantedOffer(): boolean {
    return this.offersUpgrade && !this.upgrade;
  }

  #wantsStream(): boolean {
    const offered = (this.headers.upgrade ?? '').split(',').map((protocol) => protocol.trim().toLowerCase());
    return this.method === 'GET' && offered.includes('websocket') && subprotocolOf(this.url) !== undefined;
  }
}
