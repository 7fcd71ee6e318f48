import { connect, type TLSSocket } from 'node:tls';
import type { Packet } from '#contracts/policy-model.js';
import type { CertificateFacts } from '#contracts/tls-facts.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { connectUpstream } from '#service-plane/connect-upstream.js';
import { readCertificateFacts } from '../certificate-facts.js';
import type { LinkFault } from '../refused-reason.js';
import { untrustedReason } from '../untrusted-reason.js';
import type { UpstreamTrust } from '../upstream-trust.js';

const HANDSHAKE_MS = 10_000;
const LONGEST_CHAIN = 10;

/** Who hears what a server says over HTTP/1.1. */
export type LinkListener = {
  said(chunk: Buffer): void;
  drained(): void;
  /** It ended, or broke. */
  gone(): void;
};

/** A verified TLS connection to the server that a client meant, in the client's name. */
export class ServerLink {
  /** Whether it has served a request before. */
  isUsed = false;
  /** Whether the server takes it for somebody who authenticated on it: then it serves nobody else. */
  isBound = false;
  /** Null: it has not been read from. */
  #listener: LinkListener | null = null;
  readonly #chain: readonly Uint8Array[];
  #certificate: CertificateFacts | null = null;
  /** A server that speaks while nobody asked, or has said its end, is of no use any more. */
  readonly #nobody: LinkListener = {
    said: () => this.socket.destroy(),
    drained: () => {},
    gone: () => this.socket.destroy(),
  };

  /**
   * `key`: what it is for; links for the same may serve the same client. `protocol`: which the server chose; null where it
   * chose none.
   */
  constructor(
    readonly socket: TLSSocket,
    readonly key: string,
    readonly protocol: string | null,
  ) {
    // A socket that is closed has none any more.
    this.#chain = chainOf(socket);
  }

  /** What the server showed. */
  get certificate(): CertificateFacts {
    this.#certificate ??= readCertificateFacts(this.#chain);
    return this.#certificate;
  }

  /** From now on this one hears the server, and no other. Listeners of its events would be changed twice for each user. */
  hear(listener: LinkListener): void {
    const { socket } = this;
    if (this.#listener === null) {
      const gone = (): void => this.#listener?.gone();
      socket.on('data', (chunk: Buffer) => this.#listener?.said(chunk));
      socket.on('drain', () => this.#listener?.drained());
      socket.on('end', gone);
      socket.on('close', gone);
      socket.on('error', gone);
    }
    this.#listener = listener;
    socket.resume();
  }

  /** Nobody hears it until somebody does again. */
  leave(): void {
    if (this.#listener !== null) this.#listener = this.#nobody;
  }
}

export type ServerLinkFailure = { readonly kind: 'failed'; readonly reason: LinkFault };

/** Who is connected to whom, and how. */
export type Destination = { readonly flow: Packet; readonly sni: string | null; readonly protocols: readonly string[] };

export function keyOf({ flow, sni, protocols }: Destination): string {
  return `${flow.source} ${flow.destination} ${flow.destinationPort} ${sni ?? ''} ${protocols.join()}`;
}

/** Calls back once. Answers how to give up. */
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
      finish(new ServerLink(secure, keyOf(destination), protocol));
    });
  });
  return () => {
    giveUp();
    finish({ kind: 'failed', reason: 'given_up' });
  };
}

/** Leaf first, with what the server sent behind it; nothing of a socket that is closed. */
function chainOf(socket: TLSSocket): readonly Uint8Array[] {
  const ders: Uint8Array[] = [];
  let next = socket.getPeerX509Certificate();
  while (next !== undefined && ders.length < LONGEST_CHAIN) {
    ders.push(next.raw);
    next = next.issuerCertificate;
  }
  return ders;
}
