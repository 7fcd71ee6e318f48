import { type AddressInfo, connect as connectTcp, type Server } from 'node:net';
import { connect, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import type { Decided } from '#policy/evaluate/connection/connection-steps.js';
import { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import { Http1Session } from '#service-plane/intercept/http1/http1-session.js';
import { ServerLink } from '#service-plane/intercept/server-link.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { makeCertificates, SERVER_NAME } from '#test/service-plane/certificates.js';

const { good, rootPem } = makeCertificates();
const CERT = { cert: good.certPem, key: good.keyPem };
const ALLOWED: Decided = {
  kind: 'decided',
  step: { decider: { kind: 'policy_default' }, action: 'allow', mode: 'enforce', tls: null },
  verdict: 'allow',
  reason: 'matched',
};

/** An `Http1Session` under test, between a client socket and server sockets. Every request is allowed. */
export type Http1Rig = {
  readonly client: TLSSocket;
  /**
   * The test server's TLS sockets, one for each server link of the session, in the order of the connections.
   */
  readonly servers: TLSSocket[];
  readonly link: ServerLink;
  readonly given: ServerLink[];
  readonly refused: string[];
  /**
   * True after the session's client connection is closed, so that it no longer counts for its source's limit.
   */
  readonly isOver: () => boolean;
  /**
   * Opens a TLS connection to the test server, which the session receives at its next request for a server
   * link.
   */
  keep(): Promise<void>;
  /** Advances the session's clock by `ticks`, and lets the session check its timeouts. */
  rest(ticks: number): void;
  close(): Promise<void>;
};

/**
 * Creates the sockets and the session. `before` is called with the server link before the session receives
 * the link.
 */
export async function createHttp1Rig(before: (link: ServerLink) => Promise<void> = async () => {}): Promise<Http1Rig> {
  const servers: TLSSocket[] = [];
  const server = createTlsServer(CERT, (socket) => {
    socket.on('error', () => {});
    servers.push(socket);
  });
  const serverPort = await listening(server);
  const linkTo = async (): Promise<ServerLink> => {
    const raw = connectTcp({ port: serverPort, allowHalfOpen: true });
    const socket = connect({ socket: raw, ca: rootPem, servername: SERVER_NAME });
    socket.on('error', () => {});
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    return new ServerLink(socket, '', null, () => new TrustAnchors([]));
  };
  const link = await linkTo();
  const given: ServerLink[] = [];
  const refused: string[] = [];
  const kept: ServerLink[] = [];
  const clock = { tick: 0 };
  let sessionOfClient: Http1Session | undefined;
  let isOver = false;
  await before(link);
  const gate = createTlsServer({ ...CERT, allowHalfOpen: true }, (client) => {
    client.on('error', () => {});
    const session = new Http1Session({
      client,
      clock,
      link,
      connection: { sni: SERVER_NAME, port: 443 },
      denied: '403',
      decide: () => ALLOWED,
      tellBroken: () => {},
      refuse: (reason) => refused.push(reason),
      linkAgain: (done) => {
        const one = kept.pop();
        if (one !== undefined) done(one);
        else void linkTo().then(done);
      },
      give: (one) => given.push(one),
      over: () => client.destroy(),
      reset: () => destroyWithReset(client),
    });
    sessionOfClient = session;
    client.once('close', () => {
      isOver = true;
      session.close();
    });
  });
  const port = await listening(gate);
  const socket = connectTcp({ port, allowHalfOpen: true });
  const client = connect({ socket, ca: rootPem, servername: SERVER_NAME });
  client.on('error', () => {});
  await new Promise((resolve) => client.once('secureConnect', resolve));
  return {
    client,
    servers,
    link,
    given,
    refused,
    isOver: () => isOver,
    keep: async () => {
      kept.push(await linkTo());
    },
    rest: (ticks) => {
      clock.tick += ticks;
      sessionOfClient?.checkTimeouts();
    },
    close: async () => {
      for (const one of [client, link.socket, ...given.map(({ socket: idle }) => idle), ...servers]) one.destroy();
      await Promise.all([closed(gate), closed(server)]);
    },
  };
}

/** Collects the text that a socket receives after this call. */
export function heard(socket: TLSSocket): { readonly text: string } {
  const said = { text: '' };
  socket.on('data', (chunk: Buffer) => {
    said.text += chunk.toString('latin1');
  });
  return said;
}

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
