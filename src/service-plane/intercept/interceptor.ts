import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { formatAddress } from '#addresses/ip-address.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import type { RequestFacts } from '#contracts/service-plane/http-facts.js';
import type { CertificateFacts, ClientHello, TlsFacts } from '#contracts/service-plane/tls-facts.js';
import {
  type Decided,
  decideConnection,
  decideRequest,
  type Step,
} from '#policy/evaluate/connection/connection-steps.js';
import type { InterceptCa } from '#service-plane/ca/intercept-ca.js';
import { LeafContexts } from '#service-plane/ca/leaf-contexts.js';
import type { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import type { PlaneContext } from '#service-plane/connection/plane-context.js';
import { Http1Session } from '#service-plane/intercept/http1/http1-session.js';
import { Http2Session } from '#service-plane/intercept/http2/http2-session.js';
import type { RefusedReason } from '#service-plane/refused-reason.js';
import { createUpstreamTrust, type UpstreamTrust } from '#service-plane/upstream/upstream-trust.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { keyOf, linkServer, type ServerLink, type ServerLinkFailure } from './server-link.js';
import { ServerPool } from './server-pool.js';
import type { SessionPorts } from './session-ports.js';

const HANDSHAKE_MS = 10_000;
const TICK_MS = 5_000;
const HTTP1 = 'http/1.1';
const HTTP2 = 'h2';

/** A connection to intercept, with the result of its evaluation so far. */
export type Intercepted = {
  readonly client: Socket;
  readonly flow: Packet;
  readonly hello: ClientHello;
  /** The bytes that the client has sent so far. */
  readonly said: Buffer;
  readonly steps: readonly Step[];
  /** The generation of the policy to which the rules and defaults in `steps` belong. */
  readonly generation: number;
  /** The index in `steps` of the first rule or default that is evaluated for a request. */
  readonly from: number;
  /**
   * Forwards the connection uninspected because the interceptor cannot intercept it. The interceptor calls
   * `pass` only in audit mode (D4).
   */
  readonly pass: (reason: RefusedReason) => void;
  readonly over: () => void;
};
export type InterceptedSession = {
  /**
   * Replaces the rules and defaults (`steps`) that decide the next requests. Returns false if the connection
   * must be reset.
   */
  decideAgain(steps: readonly Step[], facts: TlsFacts, generation: number): boolean;
  cut(): void;
};

/**
 * Terminates the client's TLS in place of the server, and evaluates every HTTP request (D23, D24). Each
 * service-plane thread has one interceptor.
 */
export class Interceptor {
  readonly #plane: PlaneContext;
  readonly #contexts: LeafContexts;
  #trust: UpstreamTrust;
  readonly #sessions = new Set<Session>();
  readonly #clock = { tick: 0 };
  readonly #pool = new ServerPool(this.#clock);
  readonly #ticking: NodeJS.Timeout;
  #isAble = false;

  constructor(plane: PlaneContext, ticketKeys: Buffer) {
    this.#plane = plane;
    this.#contexts = new LeafContexts({ ticketKeys });
    this.#trust = createUpstreamTrust({ source: plane.options.upstreamCa });
    this.#ticking = setInterval(() => this.#tick(), TICK_MS);
  }

  /** True if there is an intercept CA, even if the CA is not valid now. */
  get isAble(): boolean {
    return this.#isAble;
  }

  /**
   * Why the trusted CA certificates for servers (`upstream_ca`) cannot be read; null: no fault. During a
   * fault, the certificates that were read last stay in use.
   */
  get upstreamCaFault(): string | null {
    return this.#trust.fault();
  }

  /** The CA certificates that the node trusts for servers, in metadata mode too. */
  readonly roots = (): TrustAnchors => this.#trust.anchors();

  useCa(ca: InterceptCa | null): void {
    this.#isAble = ca !== null;
    this.#contexts.use(ca);
  }

  /**
   * Verifies the servers of new connections with other CA certificates: `system`, or a PEM file.
   * @throws Error if the file cannot be read, or contains no certificate.
   */
  useUpstreamCa(source: string): void {
    this.#trust = createUpstreamTrust({ source });
  }

  close(): void {
    clearInterval(this.#ticking);
    this.#pool.close();
  }

  /**
   * Starts to intercept a connection. Returns null if the connection has already ended, or was forwarded
   * uninspected.
   */
  begin(intercepted: Intercepted): InterceptedSession | null {
    const session = new Session(intercepted, this.#plane, {
      contexts: this.#contexts,
      pool: this.#pool,
      trust: this.#trust,
      clock: this.#clock,
      over: () => this.#sessions.delete(session),
    });
    this.#sessions.add(session);
    session.begin();
    return session.isOver ? null : session;
  }

  #tick(): void {
    this.#clock.tick++;
    for (const session of this.#sessions) session.checkTimeouts();
    this.#pool.checkTimeouts();
  }
}

type InterceptorParts = {
  readonly contexts: LeafContexts;
  readonly pool: ServerPool;
  readonly trust: UpstreamTrust;
  readonly clock: { readonly tick: number };
  readonly over: () => void;
};

class Session implements InterceptedSession {
  #steps: readonly Step[];
  #generation: number;
  #from: number;
  #secure: TLSSocket | null = null;
  #http: Http1Session | Http2Session | null = null;
  #facts: TlsFacts | null = null;
  #giveUp: () => void = () => {};
  #isOver = false;

  constructor(
    private readonly intercepted: Intercepted,
    private readonly plane: PlaneContext,
    private readonly means: InterceptorParts,
  ) {
    this.#steps = intercepted.steps;
    this.#generation = intercepted.generation;
    this.#from = intercepted.from;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  begin(): void {
    const { hello } = this.intercepted;
    // Fail if the client offers ALPN protocols, but neither `http/1.1` nor `h2`: the service plane (TLS and
    // HTTP inspection) cannot read any other protocol.
    if (hello.alpn.length > 0 && this.#protocols().length === 0) {
      this.#fail('no_common_protocol');
      return;
    }
    this.#link(this.#protocols(), (link) => {
      if (this.#isOver) {
        if (!('kind' in link)) link.socket.destroy();
        return;
      }
      if ('kind' in link) return this.#fail(link.reason);
      this.#acceptClient(link);
    });
  }

  decideAgain(steps: readonly Step[], facts: TlsFacts, generation: number): boolean {
    const decision = decideConnection(steps, {
      ...facts,
      certificate: this.#facts?.certificate ?? { kind: 'unreadable' },
    });
    if (decision.kind === 'needs_certificate') return false;
    if (decision.kind === 'decided' && decision.verdict === 'deny') return false;
    this.#steps = steps;
    this.#generation = generation;
    this.#from = decision.kind === 'intercept' ? decision.from : steps.indexOf(decision.step);
    const tunnel = this.#http instanceof Http1Session ? this.#http.tunnel : null;
    if (tunnel === null || this.#facts === null) return true;
    return decideRequest(steps, this.#from, this.#facts, tunnel).verdict !== 'deny';
  }

  cut(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.means.over();
    this.#http?.close();
    this.#giveUp();
    this.#secure?.destroy();
  }

  checkTimeouts(): void {
    this.#http?.checkTimeouts();
  }

  /**
   * The client's ALPN protocols that the service plane (TLS and HTTP inspection) can read. The server selects
   * one of them, and the service plane offers only this protocol to the client, because it does not translate
   * between protocols.
   */
  #protocols(): readonly string[] {
    return this.intercepted.hello.alpn.filter((protocol) => protocol === HTTP1 || protocol === HTTP2);
  }

  #link(protocols: readonly string[], done: (link: ServerLink | ServerLinkFailure) => void): void {
    const { flow, hello } = this.intercepted;
    const destination = { flow, sni: hello.sni, protocols };
    // Call `done` only after `#link` has returned, because the caller is still processing client bytes.
    const asking = setImmediate(() => {
      const kept = this.means.pool.take(keyOf(destination));
      if (kept !== null) return done(kept);
      this.#giveUp = linkServer(destination, { mark: this.plane.options.upstreamMark, trust: this.means.trust }, done);
    });
    this.#giveUp = () => clearImmediate(asking);
  }

  /**
   * Opens an HTTP/1.1 connection to the server in place of a closed one. If rules match requests by the
   * server's certificate, the new connection must have the same server certificate.
   */
  #linkAgain(done: (link: ServerLink | ServerLinkFailure) => void): void {
    this.#link(
      this.#protocols().filter((protocol) => protocol === HTTP1),
      (link) => {
        if (!('kind' in link)) {
          const facts = factsOf(this.intercepted.hello, link);
          const isOther = !isSame(facts.certificate, this.#facts?.certificate);
          const decidesByFacts = this.#steps
            .slice(this.#from)
            .some(({ tls }) => tls != null && tls.mode !== 'intercept');
          if (isOther && decidesByFacts) {
            link.socket.destroy();
            return done({ kind: 'failed', reason: 'server_changed' });
          }
          this.#facts = facts;
        }
        done(link);
      },
    );
  }

  /** Starts the TLS handshake with the client. The server's certificate was verified before. */
  #acceptClient(link: ServerLink): void {
    const { client, flow, hello, said } = this.intercepted;
    const context = this.means.contexts.of(hello.sni ?? formatAddress(flow.destination));
    if (context === null) {
      this.means.pool.give(link);
      this.#fail('no_ca');
      return;
    }
    this.#facts = factsOf(hello, link);
    client.unshift(said);
    const secure = new TLSSocket(client, {
      isServer: true,
      secureContext: context,
      ...(link.protocol === null ? {} : { ALPNProtocols: [link.protocol] }),
    });
    this.#secure = secure;
    const late = setTimeout(() => this.#fail('client_handshake'), HANDSHAKE_MS);
    secure.on('error', () => this.#end());
    const ended = (): void => this.#fail('client_handshake');
    secure.once('end', ended);
    secure.once('close', () => {
      clearTimeout(late);
      if (this.#http === null) link.socket.destroy();
      this.#end();
    });
    secure.once('secure', () => {
      clearTimeout(late);
      secure.off('end', ended);
      this.#serve(secure, link);
    });
  }

  #serve(client: TLSSocket, link: ServerLink): void {
    const { flow, hello } = this.intercepted;
    if (link.protocol === HTTP2 && link.hasEnded) {
      this.#fail('server_closed');
      return;
    }
    const ports: SessionPorts = {
      client,
      link,
      clock: this.means.clock,
      connection: { sni: hello.sni ?? formatAddress(flow.destination), port: flow.destinationPort },
      denied: this.plane.options.deniedHttp,
      decide: (request) => this.#decide(request),
      tellBroken: (request, step, matcher) => this.#tellBroken(request, step, matcher),
      refuse: (reason) => this.plane.counts.refuse(reason),
      over: () => this.#end(),
      reset: () => {
        destroyWithReset(client);
        this.#end();
      },
    };
    this.#http = link.protocol === HTTP2 ? new Http2Session(ports) : this.#http1(ports);
  }

  #http1(ports: SessionPorts): Http1Session {
    return new Http1Session({
      ...ports,
      linkAgain: (done) => this.#linkAgain(done),
      give: (given) => this.means.pool.give(given),
    });
  }

  #decide(request: RequestFacts): Decided {
    const facts = this.#facts as TlsFacts;
    const decided = decideRequest(this.#steps, this.#from, facts, request);
    this.plane.counts.request(decided.verdict);
    this.plane.hits.add(this.#generation, decided.step.decider);
    if (this.plane.tells(decided.verdict))
      this.#report(decided, request, decided.reason === 'matched' ? null : decided.reason);
    return decided;
  }

  #tellBroken(request: RequestFacts, step: Step, matcher: string): void {
    const verdict = step.mode === 'audit' ? 'audit' : 'deny';
    this.plane.counts.response(verdict);
    this.#report({ step, verdict }, request, matcher.slice(1));
  }

  #report(
    { step, verdict }: Pick<Decided, 'step' | 'verdict'>,
    { method, host, path }: RequestFacts,
    reason: string | null,
  ): void {
    this.#record({ decider: step.decider, verdict, reason, http: { method, host, path } });
  }

  #record(seen: Pick<Parameters<PlaneContext['see']>[0], 'decider' | 'verdict' | 'reason' | 'http'>): void {
    const { flow, hello } = this.intercepted;
    this.plane.see({
      ...seen,
      kind: seen.http === null ? 'tls' : 'http',
      source: flow.source,
      sourcePort: flow.sourcePort,
      destination: flow.destination,
      destinationPort: flow.destinationPort,
      generation: this.#generation,
      sni: hello.sni,
    });
  }

  #fail(reason: RefusedReason): void {
    const { counts } = this.plane;
    counts.refuse(reason);
    const step = this.#steps[this.#from];
    if (this.#secure === null && step?.mode === 'audit' && !this.#isOver) {
      this.cut();
      this.intercepted.pass(reason);
      return;
    }
    // A server or client causes these two failures, so they do not count as a denial by the policy.
    if (reason !== 'server_unreachable' && reason !== 'client_handshake') {
      counts.connection('deny');
      if (step !== undefined) this.plane.hits.add(this.#generation, step.decider);
      this.#record({ decider: step?.decider ?? null, verdict: 'deny', reason, http: null });
    }
    destroyWithReset(this.intercepted.client);
    this.#end();
  }

  #end(): void {
    if (this.#isOver) return;
    this.cut();
    this.intercepted.over();
  }
}

/**
 * Returns the TLS facts that rules match: the ClientHello and the server's certificate. The certificate is
 * parsed on first use.
 */
function factsOf(hello: ClientHello, link: ServerLink): TlsFacts {
  return {
    hello,
    get certificate() {
      return link.certificate;
    },
  };
}

function isSame(one: CertificateFacts, other: CertificateFacts | undefined): boolean {
  return one.kind === 'seen' && other?.kind === 'seen' && one.fingerprint === other.fingerprint;
}
