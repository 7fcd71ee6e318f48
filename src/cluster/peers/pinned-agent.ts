import { Agent } from 'node:https';
import type { Duplex } from 'node:stream';
import { connect, type TLSSocket } from 'node:tls';
import type { PeerIdentity } from './peer-identity.js';
import { fingerprintOf } from './peer-identity.js';

/** The time limit in milliseconds to open a connection. */
const HANDSHAKE_MS = 5_000;
const KEEP_ALIVE_MS = 10_000;

const OTHER_CERTIFICATE = 'it presents another certificate than the node has announced';

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
    super({ keepAlive: true, keepAliveMsecs: KEEP_ALIVE_MS, maxSockets: 32, timeout: 60_000 });
    this.#accepted = accepted;
    this.#identity = identity;
  }

  override createConnection(options: { host?: string; port?: number | string }, opened: Opened): undefined {
    const { host, port } = options;
    const { ca = null, ...own } = this.#identity ?? {};
    const socket = connect({
      ...(host === undefined ? {} : { host }),
      port: Number(port),
      // Send no server name: it is not compared, and an IP address is not permitted as a server name (RFC
      // 6066, section 3).
      servername: '',
      minVersion: 'TLSv1.3',
      // Accept any certificate in the handshake: `#faultOf` compares its fingerprint afterwards.
      rejectUnauthorized: false,
      // Do not compare the host name: the fingerprint identifies the node, and its certificate need not
      // contain its address.
      checkServerIdentity: () => undefined,
      ...own,
      ...(ca === null ? {} : { ca }),
    });
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    const failed = (failure: Error): void => opened(failure, socket);
    socket.once('error', failed);
    const slow = setTimeout(
      () =>
        socket.destroy(new Error(`the TLS handshake with the other node took longer than ${HANDSHAKE_MS / 1_000} s`)),
      HANDSHAKE_MS,
    );
    socket.once('close', () => clearTimeout(slow));
    socket.once('secureConnect', () => {
      clearTimeout(slow);
      const fault = this.#faultOf(socket);
      if (fault !== null) {
        socket.destroy(new Error(fault));
        return;
      }
      socket.off('error', failed);
      opened(null, socket);
    });
    return undefined;
  }

  /** Returns why the certificate of a node is not accepted; null if it is. */
  #faultOf(socket: TLSSocket): string | null {
    if (this.#identity?.ca != null && !socket.authorized)
      return `the CA of this node did not sign its certificate (${String(socket.authorizationError)})`;
    try {
      const { raw } = socket.getPeerCertificate();
      return this.#accepted.includes(fingerprintOf(raw)) ? null : OTHER_CERTIFICATE;
    } catch {
      return OTHER_CERTIFICATE;
    }
  }
}
