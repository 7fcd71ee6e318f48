import type { Endpoint } from '#dns/dns-options.js';
import type { UpstreamQuery } from './pending-query.js';
import { TcpConnection } from './tcp-connection.js';
import type { OnAnswer } from './udp-socket.js';

/** Connections to a resolver, opened on demand and kept while in use (RFC 7766). */
export class TcpExchange {
  #current: TcpConnection | null = null;

  constructor(
    private readonly to: Endpoint,
    private readonly mark: number,
    private readonly onStray: (reason: string) => void,
  ) {}

  /**
   * Returns a function that forgets the query. Calls back at most once; before the return if no descriptor is
   * available.
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
        // RFC 7766, 6.2.4: a resolver may close a connection at any time after its first answer, so try once
        // more.
        if ((connection.hasAnswered || connection.isOutdated) && !isAgain) ask(true);
        else onError();
      });
    };
    ask(false);
    return () => forget();
  }

  /** Sends open queries again over a connection from the current source address. */
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
    if (this.#current?.isTaken === false) return this.#current;
    this.#current?.retire();
    try {
      this.#current = new TcpConnection(this.to, this.mark, this.onStray);
    } catch {
      this.#current = null;
    }
    return this.#current;
  }
}
