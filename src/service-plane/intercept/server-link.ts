import { connect, type TLSSocket } from 'node:tls';
import { formatAddress } from '#policy/ipv4.js';
import type { Packet } from '#policy/model.js';
import type { LinkFault } from '../refused-reason.js';
import { untrustedReason } from '../untrusted-reason.js';
import { connectUpstream } from '../upstream.js';
import type { UpstreamTrust } from '../upstream-trust.js';

const HANDSHAKE_MS = 10_000;

/** A verified TLS connection to the server that a client meant, in the client's name. */
export type ServerLink = {
  readonly socket: TLSSocket;
  /** What it is for: links for the same may serve the same client. */
  readonly key: string;
  /** The protocol that the server chose; null where it chose none. */
  readonly protocol: string | null;
  /** Whether it has served a request before. */
  isUsed: boolean;
  /** Whether the server takes it for somebody who authenticated on it: then it serves nobody else. */
  isBound: boolean;
};

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
      finish({ socket: secure, key: keyOf(destination), protocol, isUsed: false, isBound: false });
    });
  });
  return () => {
    giveUp();
    finish({ kind: 'failed', reason: 'given_up' });
  };
}
