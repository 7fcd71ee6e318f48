import type { Endpoint } from '#dns/dns-options.js';
import type { UpstreamQuery } from './pending-query.js';
import { TcpConnection } from './tcp-connection.js';
import type { OnAnswer } from './udp-socket.js';

/**
 * The TCP connections to one upstream. A connection is opened on demand and reused for later queries (RFC
 * 7766).
 */
export class TcpExchange {
  #current: TcpConnection | null = null;

  constructor(
    private readonly to: Endpoint,
    private readonly mark: number,
    private readonly onStray: (reason: string) => void,
  ) {}

  /**
   * Sends a query. Calls `onAnswer` or `onError` at most once. If no descriptor is free, calls `onError`
   * before `send` returns. The returned function drops the query; neither callback is then called.
   */
  send(asked: UpstreamQuery, onAnswer: OnAnswer, onError: () => void): () => void {
    let forget = (): void => {};
    const ask = (isAgain: boolean): void => {
      const connection = this.#connected();
      if (connection === null) {
        onError();
        return;
      }
      forget = connection.send(asked, onAnswer, () => {
        // An upstream may close a connection at any time after its first answer (RFC 7766, 6.2.4), and
        // `renew` closes an outdated connection. In both cases, send the query once more over a new
        // connection.
        if ((connection.hasAnswered || connection.isOutdated) && !isAgain) ask(true);
        else onError();
      });
    };
    ask(false);
    return () => forget();
  }

  /**
   * Closes the current connection, whose source address is outdated. The unanswered queries of this
   * connection are sent again over a new connection.
   */
  renew(): void {
    const outdated = this.#current;
    this.#current = null;
    if (outdated === null) return;
    outdated.isOutdated = true;
    outdated.close();
  }

  close(): void {
    this.#current?.close();
  }

  #connected(): TcpConnection | null {
    if (this.#current?.isUnavailable === false) return this.#current;
    this.#current?.retire();
    try {
      this.#current = new TcpConnection(this.to, this.mark, this.onStray);
    } catch {
      this.#current = null;
    }
    return this.#current;
  }
}
