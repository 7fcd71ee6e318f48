import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { RequestFacts } from '#policy/http-facts.js';
import { type Decided, judgeConnection, judgeExchange, type Step } from '#policy/inspection.js';
import { formatAddress } from '#policy/ipv4.js';
import type { Packet } from '#policy/model.js';
import type { CertificateFacts, ClientHello, TlsFacts } from '#policy/tls-facts.js';
import type { InterceptCa } from './ca/intercept-ca.js';
import { LeafContexts } from './ca/leaf-contexts.js';
import { readCertificateFacts } from './certificate-facts.js';
import { Http1Session } from './intercept/http1-session.js';
import { Http2Session } from './intercept/http2-session.js';
import { keyOf, linkServer, type ServerLink, type ServerLinkFailure } from './intercept/server-link.js';
import { ServerPool } from './intercept/server-pool.js';
import type { SessionPorts } from './intercept/session-ports.js';
import type { Plane } from './plane.js';
import { createUpstreamTrust, type UpstreamTrust } from './upstream-trust.js';

const HANDSHAKE_MS = 10_000;
const HTTP1 = 'http/1.1';
const HTTP2 = 'h2';

/** What a connection is intercepted with. */
export type Intercepted = {
  readonly client: Socket;
  readonly flow: Packet;
  readonly hello: ClientHello;
  /** What the client said so far. */
  readonly said: Buffer;
  readonly steps: readonly Step[];
  /** Where the walk goes on with every request. */
  readonly from: number;
  readonly over: () => void;
};
export type InterceptedSession = {
  /** By these from the next request on; false: it is to be cut. */
  judgeAgain(steps: readonly Step[], facts: TlsFacts): boolean;
  cut(): void;
};

/** Ends TLS in a server's place, and judges every request (D23, D24). Of one thread. */
export class Interceptor {
  readonly #plane: Omit<Plane, 'interceptor'>;
  readonly #contexts: LeafContexts;
  readonly #trust: UpstreamTrust;
  readonly #pool = new ServerPool();
  #isAble = false;

  constructor(plane: Omit<Plane, 'interceptor'>, ticketKeys: Buffer) {
    this.#plane = plane;
    this.#contexts = new LeafContexts({ ticketKeys });
    this.#trust = createUpstreamTrust({ source: plane.options.upstreamCa });
  }

  /** Whether there is a CA. */
  get isAble(): boolean {
    return this.#isAble;
  }

  useCa(ca: InterceptCa | null): void {
    this.#isAble = ca !== null;
    this.#contexts.use(ca);
  }

  close(): void {
    this.#pool.close();
  }

  begin(intercepted: Intercepted): InterceptedSession {
    const session = new Session(intercepted, this.#plane, {
      contexts: this.#contexts,
      pool: this.#pool,
      trust: this.#trust,
    });
    session.begin();
    return session;
  }
}

type Means = { readonly contexts: LeafContexts; readonly pool: ServerPool; readonly trust: UpstreamTrust };

class Session implements InterceptedSession {
  #steps: readonly Step[];
  #from: number;
  #secure: TLSSocket | null = null;
  #http: Http1Session | Http2Session | null = null;
  #facts: TlsFacts | null = null;
  #giveUp: () => void = () => {};
  #isOver = false;

  constructor(
    private readonly what: Intercepted,
    private readonly plane: Omit<Plane, 'interceptor'>,
    private readonly means: Means,
  ) {
    this.#steps = what.steps;
    this.#from = what.from;
  }

  begin(): void {
    const { hello } = this.what;
    // Whoever offers protocols and none of these does not mean HTTP that can be read.
    if (hello.alpn.length > 0 && this.#protocols().length === 0) return this.#fail('no_common_protocol');
    this.#link(this.#protocols(), (link) => {
      if ('kind' in link) return this.#fail(link.reason);
      if (this.#isOver) return link.socket.destroy();
      this.#greet(link);
    });
  }

  judgeAgain(steps: readonly Step[], facts: TlsFacts): boolean {
    const judged = judgeConnection(steps, {
      ...facts,
      certificate: this.#facts?.certificate ?? { kind: 'unreadable' },
    });
    if (judged.kind === 'needs_certificate') return false;
    if (judged.kind === 'decided' && judged.verdict === 'deny') return false;
    this.#steps = steps;
    this.#from = judged.kind === 'intercept' ? judged.from : steps.indexOf(judged.step);
    return true;
  }

  cut(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#giveUp();
    this.#http?.close();
    this.#secure?.destroy();
  }

  /** The server chooses among those that the client offers, and the client is given what it chose: nothing is translated. */
  #protocols(): readonly string[] {
    return this.what.hello.alpn.filter((protocol) => protocol === HTTP1 || protocol === HTTP2);
  }

  #link(protocols: readonly string[], done: (link: ServerLink | ServerLinkFailure) => void): void {
    const { flow, hello } = this.what;
    const destination = { flow, sni: hello.sni, protocols };
    const kept = this.means.pool.take(keyOf(destination));
    if (kept !== null) return done(kept);
    this.#giveUp = linkServer(destination, { mark: this.plane.options.mark, trust: this.means.trust }, done);
  }

  /** Shows the client a certificate, now that the server's was found good. */
  #greet(link: ServerLink): void {
    const { client, flow, hello, said } = this.what;
    const context = this.means.contexts.of(hello.sni ?? formatAddress(flow.destination));
    if (context === null) {
      this.means.pool.give(link);
      return this.#fail('no_ca');
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
    secure.once('close', () => {
      clearTimeout(late);
      if (this.#http === null) link.socket.destroy();
      this.#end();
    });
    secure.once('secure', () => {
      clearTimeout(late);
      this.#serve(secure, link);
    });
  }

  #serve(client: TLSSocket, link: ServerLink): void {
    const { flow, hello } = this.what;
    if (link.protocol === HTTP2 && link.socket.destroyed) return this.#fail('server_closed');
    const ports: SessionPorts = {
      client,
      link,
      connection: { sni: hello.sni ?? formatAddress(flow.destination), port: flow.destinationPort },
      denied: this.plane.options.deniedHttp,
      judge: (request) => this.#judge(request),
      tellBroken: (request, step, matcher) => this.#tellBroken(request, step, matcher),
      refuse: (reason) => this.plane.counts.refuse(reason),
      over: () => this.#end(),
    };
    this.#http = link.protocol === HTTP2 ? new Http2Session(ports) : this.#http1(ports);
  }

  #http1(ports: SessionPorts): Http1Session {
    const protocols = this.#protocols().filter((protocol) => protocol === HTTP1);
    return new Http1Session({
      ...ports,
      linkAgain: (done) => this.#link(protocols, done),
      give: (given) => this.means.pool.give(given),
    });
  }

  #judge(request: RequestFacts): Decided {
    const facts = this.#facts as TlsFacts;
    const decided = judgeExchange(this.#steps, this.#from, facts, request);
    this.plane.counts.request(decided.verdict);
    this.#tell(decided, request, decided.reason === 'matched' ? null : decided.reason);
    return decided;
  }

  #tellBroken(request: RequestFacts, step: Step, matcher: string): void {
    const verdict = step.mode === 'audit' ? 'audit' : 'deny';
    this.#tell({ step, verdict }, request, `response ${matcher}`);
  }

  #tell(
    { step, verdict }: Pick<Decided, 'step' | 'verdict'>,
    { method, host, path }: RequestFacts,
    reason: string | null,
  ): void {
    this.#see({ decider: step.decider, verdict, reason, http: { method, host, path } });
  }

  #see(seen: Pick<Parameters<Plane['see']>[0], 'decider' | 'verdict' | 'reason' | 'http'>): void {
    const { flow, hello } = this.what;
    this.plane.see({
      ...seen,
      kind: seen.http === null ? 'tls' : 'http',
      source: flow.source,
      sourcePort: flow.sourcePort,
      destination: flow.destination,
      destinationPort: flow.destinationPort,
      generation: this.plane.judge.generation,
      sni: hello.sni,
    });
  }

  #fail(reason: string): void {
    this.plane.counts.refuse(reason);
    const step = this.#steps[this.#from];
    this.#see({ decider: step?.decider ?? null, verdict: 'deny', reason, http: null });
    if (this.#secure === null) this.what.client.resetAndDestroy();
    this.#end();
  }

  #end(): void {
    if (this.#isOver) return;
    this.cut();
    this.what.over();
  }
}

function factsOf(hello: ClientHello, { socket }: ServerLink): TlsFacts {
  // Taken now: a link that is closed has none any more.
  const { raw } = socket.getPeerCertificate(false);
  let certificate: CertificateFacts | null = null;
  return {
    hello,
    get certificate() {
      certificate ??= readCertificateFacts([raw]);
      return certificate;
    },
  };
}
