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
 * A request whose `Upgrade` header Node.js ignores, unless it asks for a WebSocket at the path of a stream.
 * By default, Node.js 20 treats every request with `Upgrade` as an upgrade if the server has a listener for
 * upgrades. But a server must answer a request with an unwanted upgrade normally (RFC 9110, 7.8). The type
 * declarations of Node.js lack the property `upgrade`, which Node.js sets and reads.
 */
export class UpgradeRequest extends IncomingMessage {
  // This member cannot be `#private`: the constructor of `IncomingMessage` sets `upgrade` before private
  // members exist.
  declare private offersUpgrade: boolean;

  set upgrade(offers: boolean) {
    this.offersUpgrade = offers;
  }

  get upgrade(): boolean {
    return this.offersUpgrade && (this.method === 'CONNECT' || this.#wantsStream());
  }

  /** Whether the request offers a change of the protocol (`Upgrade`) that the server ignores. */
  get isUnwantedOffer(): boolean {
    return this.offersUpgrade && !this.upgrade;
  }

  #wantsStream(): boolean {
    const offered = (this.headers.upgrade ?? '').split(',').map((protocol) => protocol.trim().toLowerCase());
    return this.method === 'GET' && offered.includes('websocket') && subprotocolOf(this.url) !== undefined;
  }
}
