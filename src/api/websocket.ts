import type { IncomingMessage } from 'node:http';
import websocket from '@fastify/websocket';
import type { Api } from './api.js';

/**
 * The subprotocol of each stream. A client that offers none is accepted; one that offers only others is
 * refused.
 */
const SUBPROTOCOLS: Readonly<Record<string, string>> = {
  '/api/v1/wiretap/stream': 'weir.wiretap.v1',
  '/api/v1/debug/statecharts/stream': 'weir.statecharts.v1',
};

/** Clients send only control frames. */
const MESSAGE_BYTES = 1_024;
const GOING_AWAY = 1001;
const GOODBYE_MS = 1_000;

/** Enables routes with `websocket: true` that are registered after it. */
export async function registerWebSockets(api: Api): Promise<void> {
  // After an upgrade request the HTTP timeouts no longer apply. A refused connection must be closed here.
  api.addHook('onResponse', async ({ raw }) => {
    if (upgrades(raw)) raw.socket.destroySoon();
  });
  await api.register(websocket, {
    preClose(done) {
      for (const client of this.websocketServer.clients) {
        client.close(GOING_AWAY, 'the node is shutting down');
        // A client that does not read does not answer the close frame, and would block the shutdown.
        setTimeout(() => client.terminate(), GOODBYE_MS).unref();
      }
      this.websocketServer.close();
      done();
    },
    options: {
      maxPayload: MESSAGE_BYTES,
      perMessageDeflate: false,
      handleProtocols: (offered, { url }) => {
        const spoken = SUBPROTOCOLS[(url ?? '').split('?', 1)[0] ?? ''];
        return spoken !== undefined && offered.has(spoken) ? spoken : false;
      },
    },
  });
}

/** Node's types do not declare this property. */
const upgrades = (request: IncomingMessage): boolean => (request as { readonly upgrade?: boolean }).upgrade === true;
