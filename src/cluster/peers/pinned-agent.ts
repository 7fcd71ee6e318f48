import { Agent } from 'node:https';
import type { Duplex } from 'node:stream';
import { connect } from 'node:tls';
import type { PeerIdentity } from './peer-identity.js';
import { fingerprintOf } from './peer-identity.js';

/** How long opening a connection may take. */
const HANDSHAKE_MS = 5_000;

type Opened = (failure: Error | null, socket: Duplex) => void;

/**
 * Connects to one node. A connection carries requests only after the certificate of the node was compared
 * with the expected fingerprints, and with the CA of `identity` if it has one.
 */
export class PinnedAgent extends Agent {
  readonly #accepted: readonly string[];
  readonly #identity: PeerIdentity | null;

  /** `identity`: the certificate that the agent presents; null if it presents none. */
  constructor(accepted: readonly string[], identity: PeerIdentity | null) {
    super({ keepAlive: true, keepAliveMsecs: 10_000, maxSockets: 8, timeout: 60_000 });
    this.#accepted = accepted;
    this.#identity = identity;
  }

  override createConnection(options: { host?: string; port?: number | string }, opened: Opened): undefined {
    const { host, port } = options;
    const { ca = null, ...own } = this.#identity ?? {};
    const socket = connect({
      ...(host === undefined ? {} : { host }),
      port: Number(port),
      // The name is not compared, and an address is not allowed here (RFC 6066, 3).
      servername: '',
      minVersion: 'TLSv1.3',
      // The fingerprint is compared below.
      rejectUnauthorized: false,
      // The fingerprint names the node; its certificate need not contain its address.
      checkServerIdentity: () => undefined,
      ...own,
      ...(ca === null ? {} : { ca }),
    });
    const failed = (failure: Error): void => opened(failure, socket);
    socket.once('error', failed);
    const slow = setTimeout(() => socket.destroy(new Error('the TLS handshake took too long')), HANDSHAKE_MS);
    socket.once('close', () => clearTimeout(slow));
    socket.once('secureConnect', () => {
      clearTimeout(slow);
      const { raw } = socket.getPeerCertificate();
      const fault =
        ca !== null && !socket.authorized
          ? `the CA of this node did not sign its certificate (${String(socket.authorizationError)})`
          : this.#accepted.includes(fingerprintOf(raw))
            ? null
            : 'it presents another certificate than the node has announced';
      if (fault !== null) {
        socket.destroy(new Error(fault));
        return;
      }
      socket.off('error', failed);
      opened(null, socket);
    });
    return undefined;
  }
}
