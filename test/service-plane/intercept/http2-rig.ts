import { type ClientHttp2Session, connect, createSecureServer, type Http2SecureServer } from 'node:http2';
import { type AddressInfo, connect as connectTcp, type Server } from 'node:net';
import {
  createServer as createTlsServer,
  type TLSSocket,
  type Server as TlsServer,
  connect as tlsConnect,
} from 'node:tls';
import type { Rule } from '#contracts/policy/policy-model.js';
import type { RequestFacts } from '#contracts/service-plane/http-facts.js';
import { type Decided, decideRequest, type Step } from '#policy/evaluate/connection/connection-steps.js';
import { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import { Http2Session } from '#service-plane/intercept/http2/http2-session.js';
import { ServerLink } from '#service-plane/intercept/server-link.js';
import type { SessionPorts } from '#service-plane/intercept/session-ports.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { makeCertificates, SERVER_NAME } from '#test/service-plane/certificates.js';

type HttpBlock = NonNullable<Rule['tls']>['http'];

const { good, rootPem } = makeCertificates();
const CERT = { cert: good.certPem, key: good.keyPem };

/**
 * An HTTP/2 server, and an `Http2Session` under test between clients and this server. All connections use
 * real TLS sockets.
 */
export type Http2Rig = {
  readonly server: Http2SecureServer;
  /** The decisions on the requests. The property `refused` below has the reasons of refusals. */
  readonly decisions: Decided[];
  readonly broken: string[];
  readonly refused: string[];
  readonly sessions: Set<Http2Session>;
  readonly clock: { tick: number };
  /** The session's TLS sockets to the server. */
  readonly links: TLSSocket[];
  /** The server's ends of the connections in `links`. */
  readonly serverSockets: readonly TLSSocket[];
  /** The sockets of the clients that `client` has returned. */
  readonly clientSockets: readonly TLSSocket[];
  /** Sets the rule that evaluates all later requests. */
  rule(http: HttpBlock, more?: Partial<Pick<Step, 'action' | 'mode'>>): void;
  client(): ClientHttp2Session;
  /** Opens a TLS connection on which the test writes its own HTTP/2 frames. */
  dial(): Promise<TLSSocket>;
  close(): Promise<void>;
};

export async function createHttp2Rig(denied: '403' | 'reset' = '403'): Promise<Http2Rig> {
  const server = createSecureServer({ ...CERT, settings: { maxConcurrentStreams: 200 } });
  const serverSockets: TLSSocket[] = [];
  const clientSockets: TLSSocket[] = [];
  server.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', () => {});
    serverSockets.push(socket);
  });
  const serverPort = await listening(server);
  const decisions: Decided[] = [];
  const broken: string[] = [];
  const refused: string[] = [];
  const sessions = new Set<Http2Session>();
  const clock = { tick: 0 };
  const links: TLSSocket[] = [];
  let steps: readonly Step[] = [];

  const decide = (request: RequestFacts): Decided => {
    const hello = { kind: 'hello', sni: SERVER_NAME, alpn: ['h2'] } as never;
    const decided = decideRequest(steps, 0, { hello, certificate: { kind: 'unreadable' } }, request);
    decisions.push(decided);
    return decided;
  };
  const gate = createTlsServer({ ...CERT, ALPNProtocols: ['h2'], allowHalfOpen: true }, (client) => {
    client.on('error', () => {});
    const raw = connectTcp({ port: serverPort, allowHalfOpen: true });
    const socket = tlsConnect({ socket: raw, ca: rootPem, servername: SERVER_NAME, ALPNProtocols: ['h2'] });
    links.push(socket);
    const failed = (): unknown => client.destroy();
    socket.once('error', failed);
    socket.once('secureConnect', () => {
      socket.off('error', failed);
      socket.on('error', () => {});
      const ports: SessionPorts = {
        client,
        clock,
        link: new ServerLink(socket, '', 'h2', () => new TrustAnchors([])),
        connection: { sni: SERVER_NAME, port: 443 },
        denied,
        decide,
        tellBroken: (_request, _step, matcher) => broken.push(matcher),
        refuse: (reason) => refused.push(reason),
        over: () => {
          sessions.delete(session);
          client.destroy();
        },
        reset: () => destroyWithReset(client),
      };
      const session = new Http2Session(ports);
      sessions.add(session);
      client.once('close', () => session.close());
    });
  });
  const port = await listening(gate);
  const dialled: (ClientHttp2Session | TLSSocket)[] = [];
  const rig: Http2Rig = {
    server,
    decisions,
    broken,
    refused,
    sessions,
    clock,
    links,
    serverSockets,
    clientSockets,
    rule: (http, { action = 'allow', mode = 'enforce' } = {}) => {
      const rule = { decider: { kind: 'rule', group: 'g', rule: 'r' }, action, mode } as const;
      const rest = { decider: { kind: 'policy_default' }, action: 'deny', mode: 'enforce', tls: null } as const;
      steps = [{ ...rule, tls: { mode: 'intercept', ...(http === undefined ? {} : { http }) } }, rest];
    },
    client: () => {
      const client = connect(`https://${SERVER_NAME}`, {
        // Node counts the bodies that wait to be sent, and from Node 22 on resets streams above its default
        // of 10 MB.
        maxSessionMemory: 100,
        createConnection: () => {
          const socket = tlsConnect({ port, ca: rootPem, servername: SERVER_NAME, ALPNProtocols: ['h2'] });
          clientSockets.push(socket);
          return socket;
        },
      });
      client.on('error', () => {});
      dialled.push(client);
      return client;
    },
    dial: () => {
      const socket = tlsConnect({ port, ca: rootPem, servername: SERVER_NAME, ALPNProtocols: ['h2'] });
      socket.on('error', () => {});
      dialled.push(socket);
      return new Promise((resolve) => socket.once('secureConnect', () => resolve(socket)));
    },
    close: async () => {
      for (const one of dialled) one.destroy();
      for (const socket of serverSockets) socket.destroy();
      await Promise.all([closed(gate), closed(server)]);
    },
  };
  rig.rule(undefined);
  return rig;
}

async function listening(server: Server | TlsServer | Http2SecureServer): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

function closed(server: Server | TlsServer | Http2SecureServer): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}
