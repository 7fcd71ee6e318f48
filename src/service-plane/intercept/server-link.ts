import { connect, type TLSSocket } from 'node:tls';
import { formatAddress } from '#addresses/ip-address.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import type { CertificateFacts } from '#contracts/service-plane/tls-facts.js';
import { readCertificateFacts } from '#service-plane/certificate/certificate-facts.js';
import { connectUpstream } from '#service-plane/upstream/connect-upstream.js';
import { untrustedReason } from '#service-plane/upstream/untrusted-reason.js';
import type { UpstreamTrust } from '#service-plane/upstream/upstream-trust.js';
import type { TrustAnchors } from '../certificate/trust-anchors.js';
import type { LinkFault } from '../refused-reason.js';
import { type TlsEnd, watchTlsEnd } from './stream-end.js';

const HANDSHAKE_MS = 10_000;
const MAX_CHAIN_LENGTH = 10;

/** Receives the events of an HTTP/1.1 connection to a server. */
export type LinkListener = {
  onData(chunk: Buffer): void;
  drained(): void;
  /** Called when the server has ended its direction: after all data, or after a reset (`cut`). */
  gone(how: TlsEnd): void;
};

/** A verified TLS connection to the client's original destination, opened from the client's address. */
export class ServerLink {
  /** True after at least one complete request and response were transferred over this connection. */
  isUsed = false;
  /**
   * True if the server may have bound the connection to an authenticated user. The connection must then not
   * be used for another client connection.
   */
  isBound = false;
  /** The current listener; null before the first call of `listen`. */
  #listener: LinkListener | null = null;
  readonly #chain: readonly Uint8Array[];
  #certificate: CertificateFacts | null = null;
  readonly #end: () => TlsEnd | null;
  /**
   * The listener from `detach` until the next call of `listen`. If the server sends data without a request,
   * or ends the connection, this listener closes the connection.
   */
  readonly #unusedListener: LinkListener = {
    onData: () => this.socket.destroy(),
    drained: () => {},
    gone: () => this.socket.destroy(),
  };

  /**
   * `key`: identifies the destination; the pool gives a connection only to a session whose destination has
   * the same key. `protocol`: the ALPN protocol that the server selected; null if the server selected none.
   * `roots`: see `CertificateOptions`.
   */
  constructor(
    readonly socket: TLSSocket,
    readonly key: string,
    readonly protocol: string | null,
    private readonly roots: () => TrustAnchors,
  ) {
    // Read the certificates now, because a closed socket returns no certificates.
    this.#chain = chainOf(socket);
    this.#end = watchTlsEnd(socket);
  }

  /** True if the server can send no more data. Data that it sent before may still wait to be read. */
  get hasEnded(): boolean {
    return this.socket.destroyed || this.#end() !== null;
  }

  /** The properties of the server's certificate that rules can match. */
  get certificate(): CertificateFacts {
    this.#certificate ??= readCertificateFacts(this.#chain, { roots: this.roots });
    return this.#certificate;
  }

  /**
   * Replaces the listener. The event listeners of the socket itself stay the same, which saves two changes of
   * socket listeners for each request.
   */
  listen(listener: LinkListener): void {
    const { socket } = this;
    if (this.#listener === null) {
      socket.on('data', (chunk: Buffer) => this.#listener?.onData(chunk));
      socket.on('drain', () => this.#listener?.drained());
      socket.on('end', () => this.#listener?.gone(this.#end() ?? 'cut'));
      for (const event of ['close', 'error'] as const) socket.on(event, () => this.#listener?.gone('cut'));
    }
    this.#listener = listener;
    socket.resume();
  }

  /** Replaces the session's listener by the listener for an unused link. */
  detach(): void {
    if (this.#listener !== null) this.#listener = this.#unusedListener;
  }
}

export type ServerLinkFailure = { readonly kind: 'failed'; readonly reason: LinkFault };

/** The addresses, the server name and the ALPN protocols of a connection to a server. */
export type Destination = {
  readonly flow: Packet;
  readonly sni: string | null;
  readonly protocols: readonly string[];
};

export function keyOf({ flow, sni, protocols }: Destination): string {
  return `${flow.source} ${flow.destination} ${flow.destinationPort} ${sni ?? ''} ${protocols.join()}`;
}

/**
 * Opens a connection to a server, and calls `done` once with the connection or the failure. The returned
 * function cancels the attempt; `done` then gets a failure.
 */
export function linkServer(
  destination: Destination,
  { mark, trust }: { readonly mark: number; readonly trust: UpstreamTrust },
  done: (link: ServerLink | ServerLinkFailure) => void,
): () => void {
  const { flow, sni, protocols } = destination;
  let socket: TLSSocket | null = null;
  let isDone = false;
  const finish = (result: ServerLink | ServerLinkFailure): void => {
    if (isDone) return;
    isDone = true;
    clearTimeout(late);
    if ('kind' in result) socket?.destroy();
    done(result);
  };
  const late = setTimeout(() => finish({ kind: 'failed', reason: 'server_handshake' }), HANDSHAKE_MS);
  const giveUp = connectUpstream(flow, mark, (raw) => {
    if (raw === null || isDone) {
      raw?.destroy();
      return finish({ kind: 'failed', reason: 'server_unreachable' });
    }
    const options = trust.connection(sni, formatAddress(flow.destination));
    const secure = connect({
      ...options,
      socket: raw,
      ...(protocols.length > 0 ? { ALPNProtocols: [...protocols] } : {}),
    });
    socket = secure;
    secure.on('error', (failure) => {
      const reason = untrustedReason(failure);
      finish({ kind: 'failed', reason: reason === null ? 'server_handshake' : `upstream_untrusted:${reason}` });
    });
    secure.once('close', () => finish({ kind: 'failed', reason: 'server_handshake' }));
    secure.once('secureConnect', () => {
      const protocol = typeof secure.alpnProtocol === 'string' ? secure.alpnProtocol : null;
      finish(new ServerLink(secure, keyOf(destination), protocol, () => trust.anchors()));
    });
  });
  return () => {
    giveUp();
    finish({ kind: 'failed', reason: 'given_up' });
  };
}

/**
 * Returns the certificates that the server sent, leaf first, at most `MAX_CHAIN_LENGTH`; empty if the socket
 * is closed.
 */
function chainOf(socket: TLSSocket): readonly Uint8Array[] {
  const ders: Uint8Array[] = [];
  let next = socket.getPeerX509Certificate();
  while (next !== undefined && ders.length < MAX_CHAIN_LENGTH) {
    ders.push(next.raw);
    next = next.issuerCertificate;
  }
  return ders;
}
