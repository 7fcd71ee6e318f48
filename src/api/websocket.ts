import type { IncomingMessage } from 'node:http';
import websocket from '@fastify/websocket';
import type { Api } from './api.js';

/** What is spoken on each stream. A client that offers nothing is taken at its word; one that offers something else is not. */
const SUBPROTOCOLS: Readonly<Record<string, string>> = {
  '/api/v1/wiretap/stream': 'weir.wiretap.v1',
  '/api/v1/debug/statecharts/stream': 'weir.statecharts.v1',
};

/** Clients have nothing to say but control frames. */
const MESSAGE_BYTES = 1_024;
const GOING_AWAY = 1001;
const GOODBYE_MS = 1_000;

/** Routes with `websocket: true` work from here on. */
export async function registerWebSockets(api: Api): Promise<void> {
  // Once a connection asked for an upgrade no time-out of HTTP holds for it: one that is refused must not stay.
  api.addHook('onResponse', async ({ raw }) => {
    if (upgrades(raw)) raw.socket.destroySoon();
  });
  await api.register(websocket, {
    preClose(done) {
      for (const client of this.websocketServer.clients) {
        client.close(GOING_AWAY, 'the node is shutting down');
        // One that does not read does not answer either, and would hold the shutdown up.
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

/** Node's types leave it out. */
const upgrades = (request: IncomingMessage): boolean => (request as { readonly upgrade?: boolean }).upgrade === true;
