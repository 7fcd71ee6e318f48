import type { Socket } from 'node:net';
import { itemAt } from '#arrays/read.js';
import type { Packet } from '#contracts/policy/policy-model.js';
import type { CertificateFacts, HelloFacts, HelloFault, TlsFacts } from '#contracts/service-plane/tls-facts.js';
import { decideConnection, type Step } from '#policy/evaluate/connection/connection-steps.js';
import { readCertificateFacts } from '#service-plane/certificate/certificate-facts.js';
import type { TrustAnchors } from '#service-plane/certificate/trust-anchors.js';
import type { Interceptor } from '#service-plane/intercept/interceptor.js';
import type { OverflowReason, RefusedReason } from '#service-plane/refused-reason.js';
import { type FlightFacts, FlightReader } from '#service-plane/tls/flight-reader.js';
import { HelloReader } from '#service-plane/tls/hello/hello-reader.js';
import { connectUpstream } from '#service-plane/upstream/connect-upstream.js';
import { destroyWithReset } from '#sockets/socket-options.js';
import { type ClientBytes, NO_BYTES, NO_CLIENT_BYTES, type Outcome, type QueriedServer } from './connection-outcome.js';
import { Handshake, type HandshakeFault } from './handshake.js';
import type { PlaneContext } from './plane-context.js';
import type { Spliced, Splices } from './splices.js';

export type Plane = PlaneContext & { readonly interceptor: Interceptor; readonly splices: Splices };

const HELLO_MS = 5_000;
const FLIGHT_MS = 5_000;
const UNREAD: HelloFacts = { kind: 'unreadable', fault: 'incomplete' };

/** An established connection that already has a verdict. */
type EstablishedConnection = {
  /**
   * Evaluates the connection again with the rules and defaults of a new policy (`steps`). Returns false if
   * the connection must be reset.
   */
  decideAgain(steps: readonly Step[], facts: TlsFacts): boolean;
};

/**
 * A connection that the datapath redirected to the service plane. Before the verdict, no byte of the
 * connection is forwarded, except the ClientHello if the verdict needs the server's certificate (D22).
 */
export class Connection {
  #facts: TlsFacts = { hello: UNREAD, certificate: { kind: 'unasked' } };
  #server: Socket | null = null;
  #live: EstablishedConnection | null = null;
  /** The generation of the policy from which `#steps()` last returned rules and defaults. */
  #generation = 0;
  /** Number of changes so far of the policy and of the Kubernetes object that owns the source address. */
  #changes = 0;
  /** The value of `#changes` for which `#steps()` last returned rules and defaults. */
  #stepsFor = 0;
  #isOver = false;
  #spliced: Spliced | null = null;
  #isSuspended = false;
  #cancel: () => void = () => {};

  constructor(
    private readonly plane: Plane,
    private readonly client: Socket,
    readonly flow: Packet,
    private readonly over: (connection: Connection) => void,
  ) {
    client.on('error', () => this.cut());
    client.once('close', () => this.#end());
  }

  async begin(): Promise<void> {
    const steps = await this.#steps();
    if (this.#isOver) return;
    if (steps === null) return this.#refuse('no_policy');
    // The policy in force does not inspect the connection. An earlier policy had redirected it.
    if (steps[0]?.tls === null) return this.#decide(steps, NO_CLIENT_BYTES);
    this.#readHello(steps);
  }

  /**
   * Handles a connection above the limit of inspected connections: evaluates it like a connection with an
   * unreadable ClientHello. If the rule or default that decides is in audit mode, the connection passes
   * uninspected (D4). Otherwise it is reset.
   */
  async beginUnread(reason: OverflowReason): Promise<void> {
    const steps = await this.#steps();
    if (this.#isOver) return;
    const decision = steps === null ? null : decideConnection(steps, this.#facts);
    if (decision?.kind !== 'decided') return this.#refuse(reason);
    this.plane.counts.refuse(reason);
    const verdict = decision.verdict === 'audit' ? 'audit' : 'deny';
    this.#carryOut({ step: decision.step, verdict, reason }, NO_CLIENT_BYTES, null);
  }

  /**
   * Must be called after a change of the policy, or of the Kubernetes object that owns the source address.
   * Evaluates an established connection again (D19b). Any other connection is decided by the new rules.
   */
  async decideAgain(): Promise<void> {
    this.#changes += 1;
    await this.#decideEstablished();
  }

  async #decideEstablished(): Promise<void> {
    if (this.#live === null) return;
    // Also try expired grants (permissions for addresses that DNS resolved): an established connection keeps
    // its verdict after the expiry of the grant that permitted it (D12).
    for (const expiredToo of [false, true]) {
      const steps = await this.#steps(expiredToo);
      if (steps === null || this.#isOver) return;
      if (this.#live?.decideAgain(steps, this.#facts) !== false) return this.#setSuspended(false);
    }
    // An intercepted connection cannot be suspended, because its client waits for a response from this node.
    // So close it.
    if (this.#spliced === null) this.#refuse('cut_by_policy');
    else this.#setSuspended(true);
  }

  /**
   * Suspends a spliced connection that the policy denies, or resumes it (D19). A suspended connection
   * transfers no data; it ends when the client or the server closes it.
   */
  #setSuspended(suspended: boolean): void {
    if (this.#isSuspended === suspended) return;
    this.#isSuspended = suspended;
    if (suspended) this.plane.counts.refuse('suspended_by_policy');
    this.plane.counts.suspended += suspended ? 1 : -1;
    this.#spliced?.setSuspended(suspended);
  }

  /** Whether the policy in force denies this connection, which an earlier policy allowed. */
  get isSuspended(): boolean {
    return this.#isSuspended;
  }

  /** Resets the client's socket and the server's socket immediately. */
  cut(): void {
    if (this.#isOver) return;
    destroyWithReset(this.client);
    if (this.#server !== null) destroyWithReset(this.#server);
    this.#end();
  }

  /**
   * Returns the rules and defaults that can decide the connection, in the order of evaluation; null before
   * the first policy. If the policy or the Kubernetes object that owns the source address changes during the
   * read, the method reads again.
   */
  async #steps(expiredToo = false): Promise<readonly Step[] | null> {
    const { evaluator } = this.plane;
    for (;;) {
      const changes = this.#changes;
      const { generation } = evaluator;
      const steps = await evaluator.stepsOf(this.flow, expiredToo);
      if (changes !== this.#changes) continue;
      this.#generation = generation;
      this.#stepsFor = changes;
      return steps;
    }
  }

  /**
   * Decides the connection by `steps`, the rules and defaults that the caller read before it waited for
   * bytes. If the policy or the owner of the source address has changed during the wait, reads them again.
   */
  #settle(steps: readonly Step[], said: ClientBytes, asked: QueriedServer | null = null): void {
    if (this.#stepsFor === this.#changes) {
      this.#decide(steps, said, asked);
      return;
    }
    void this.#steps().then((newer) => {
      if (this.#isOver) return;
      if (newer === null) this.#refuse('no_policy');
      else this.#decide(newer, said, asked);
    });
  }

  /**
   * From now on, evaluates the connection again by `live` after each change of the policy or of the owner of
   * the source address. If such a change followed the last call of `#steps()`, evaluates it now.
   */
  #goLive(live: EstablishedConnection): void {
    this.#live = live;
    if (this.#stepsFor !== this.#changes) void this.#decideEstablished();
  }

  #readHello(steps: readonly Step[]): void {
    const reader = new HelloReader();
    const { client } = this;
    const stop = (): void => {
      clearTimeout(late);
      client.off('data', read);
      client.off('end', ended);
      client.pause();
    };
    const settle = (hello: HelloFacts): void => {
      stop();
      this.#facts = { ...this.#facts, hello };
      const bytes = Buffer.from(reader.bytes);
      const end = hello.kind === 'hello' ? reader.end : bytes.length;
      const said = { hello: bytes.subarray(0, end), body: reader.body, behind: bytes.subarray(end) };
      this.#settle(steps, said);
    };
    const read = (chunk: Buffer): void => {
      const hello = reader.push(chunk);
      if (hello !== null) settle(hello);
    };
    const giveUp = (fault: HelloFault) => (): void => settle({ kind: 'unreadable', fault });
    const ended = giveUp('incomplete');
    const late = setTimeout(giveUp('late'), HELLO_MS);
    this.#cancel = stop;
    client.on('data', read);
    client.once('end', ended);
    client.resume();
  }

  #decide(steps: readonly Step[], said: ClientBytes, asked: QueriedServer | null = null): void {
    const decision = decideConnection(steps, this.#facts);
    switch (decision.kind) {
      case 'decided':
        this.#carryOut(decision, said, asked);
        return;
      case 'needs_certificate':
        this.#askServer(steps, said);
        return;
      case 'intercept': {
        const step = itemAt(steps, decision.from);
        if (this.plane.interceptor.isAble) {
          // Closing this server socket is safe, because the client has not received any byte from it yet.
          this.#server?.destroy();
          this.#server = null;
          this.#intercept(steps, decision.from, said);
          return;
        }
        // Without a CA, a connection that must be intercepted is denied. In audit mode, the connection
        // passes uninspected (D4, D23).
        const verdict = step.mode === 'audit' ? 'audit' : 'deny';
        this.plane.counts.refuse('no_ca');
        this.#carryOut({ step, verdict, reason: 'no_ca' }, said, asked);
        return;
      }
    }
  }

  #carryOut(decided: Outcome, said: ClientBytes, asked: QueriedServer | null): void {
    this.#report(decided);
    if (decided.verdict === 'deny') {
      this.cut();
    } else if (asked === null) {
      this.#connect(said, (server) => this.#follow({ server, held: NO_BYTES }, said, decided));
    } else {
      this.#follow(asked, said, decided);
    }
  }

  #connect(said: ClientBytes, then: (server: Socket) => void): void {
    this.#cancel = connectUpstream(this.flow, this.plane.options.upstreamMark, (server) => {
      this.#cancel = () => {};
      if (this.#isOver) {
        server?.destroy();
        return;
      }
      if (server === null) return this.#refuse('server_unreachable');
      if (this.#stepsFor !== this.#changes) {
        // The policy or the owner of the source address changed while the server connection was being
        // opened. Decide again before the server receives any byte.
        server.destroy();
        return this.#settle([], said);
      }
      this.#server = server;
      if (said.hello.length > 0) server.write(said.hello);
      then(server);
    });
  }

  /**
   * Forwards the connection. If a ClientHello was evaluated, first waits for the server's response to that
   * ClientHello.
   */
  #follow({ server, held }: QueriedServer, { body, behind }: ClientBytes, decided: Outcome): void {
    const go = (rest: Uint8Array): void => {
      if (rest.length > 0) server.write(rest);
      const spliced = this.plane.splices.splice(this.client, server, () => this.#end());
      this.#spliced = spliced;
      this.#cancel = () => spliced.cut();
    };
    if (body.length === 0) {
      if (held.length > 0) this.client.write(held);
      go(behind);
      this.#goLive(this.#decided);
      return;
    }
    const handshake = new Handshake({ client: this.client, server }, { hello: body, behind, held }, (fault, rest) => {
      this.#cancel = () => {};
      if (fault === null) go(rest);
      else void this.#break(fault, decided, () => go(rest));
    });
    this.#cancel = () => handshake.stop();
    handshake.begin();
    this.#goLive(this.#decided);
  }

  /**
   * Handles a handshake fault: the server does not answer with TLS, or would use a second ClientHello that
   * was not evaluated. The connection passes only in audit mode (D4, D22).
   */
  async #break(fault: HandshakeFault, decided: Outcome, go: () => void): Promise<void> {
    const steps = await this.#steps(true);
    if (this.#isOver) return;
    if (steps === null) return this.#refuse('no_policy');
    const hello: HelloFacts = { kind: 'unreadable', fault };
    const certificate: CertificateFacts = { kind: 'unreadable' };
    const decision = decideConnection(steps, { hello, certificate });
    const isAudited = decision.kind === 'decided' && decision.verdict === 'audit';
    const { step } = decision.kind === 'decided' && decision.verdict !== 'allow' ? decision : decided;
    this.#report({ step, verdict: isAudited ? 'audit' : 'deny', reason: fault });
    if (!isAudited) return this.cut();
    this.#facts = { hello, certificate };
    go();
  }

  /**
   * Evaluates a forwarded connection again by the ClientHello and the certificate that are already known.
   */
  readonly #decided: EstablishedConnection = {
    decideAgain: (steps, facts) => {
      // A certificate that Weir has not requested counts as unreadable, because the handshake is over and
      // Weir can no longer request it.
      const certificate: CertificateFacts =
        facts.certificate.kind === 'unasked' ? { kind: 'unreadable' } : facts.certificate;
      const decision = decideConnection(steps, { ...facts, certificate });
      const step = decision.kind === 'intercept' ? steps[decision.from] : undefined;
      if (step !== undefined) return step.mode === 'audit';
      return decision.kind === 'decided' && decision.verdict !== 'deny';
    },
  };

  /**
   * Sends the ClientHello to the server, and holds the server's response back from the client until Weir has
   * evaluated the certificate.
   */
  #askServer(steps: readonly Step[], said: ClientBytes): void {
    this.#connect(said, (server) => {
      const reader = new FlightReader();
      const stop = (): void => {
        clearTimeout(late);
        server.off('data', read);
        server.off('end', giveUp);
        server.off('error', giveUp);
        server.pause();
      };
      const settle = (certificate: CertificateFacts): void => {
        stop();
        this.#facts = { ...this.#facts, certificate };
        this.#settle(steps, said, { server, held: Buffer.from(reader.bytes) });
      };
      const read = (chunk: Buffer): void => {
        const flight = reader.push(chunk);
        if (flight !== null) settle(certificateOf(flight, this.plane.interceptor.roots));
      };
      const giveUp = (): void => settle({ kind: 'unreadable' });
      const late = setTimeout(giveUp, FLIGHT_MS);
      this.#cancel = stop;
      server.on('data', read);
      server.once('end', giveUp);
      server.once('error', giveUp);
      server.resume();
    });
  }

  #intercept(steps: readonly Step[], from: number, said: ClientBytes): void {
    const { hello } = this.#facts;
    if (hello.kind !== 'hello') throw new Error('intercept a connection: the ClientHello could not be read');
    this.plane.counts.intercepted++;
    const session = this.plane.interceptor.begin({
      client: this.client,
      flow: this.flow,
      hello,
      said: Buffer.concat([said.hello, said.behind]),
      steps,
      generation: this.#generation,
      from,
      pass: (reason) => {
        this.#live = null;
        const told: Outcome = { step: itemAt(steps, from), verdict: 'audit', reason };
        this.#carryOut(told, said, null);
      },
      over: () => this.#end(),
    });
    if (session === null) return;
    this.#cancel = () => session.cut();
    this.#goLive({ decideAgain: (again, facts) => session.decideAgain(again, facts, this.#generation) });
  }

  #report({ step, verdict, reason }: Outcome): void {
    const { plane, flow } = this;
    const { hello } = this.#facts;
    plane.counts.connection(verdict);
    plane.hits.add(this.#generation, step.decider);
    if (!plane.tells(verdict)) return;
    plane.see({
      kind: 'tls',
      source: flow.source,
      sourcePort: flow.sourcePort,
      destination: flow.destination,
      destinationPort: flow.destinationPort,
      generation: plane.evaluator.generation,
      decider: step.decider,
      verdict,
      reason: reason === 'matched' ? null : reason,
      sni: hello.kind === 'hello' ? hello.sni : null,
      http: null,
    });
  }

  #refuse(reason: RefusedReason): void {
    this.plane.counts.refuse(reason);
    this.cut();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#isSuspended) this.plane.counts.suspended--;
    this.#cancel();
    this.client.destroy();
    this.#server?.destroy();
    this.over(this);
  }
}

function certificateOf(flight: FlightFacts, roots: () => TrustAnchors): CertificateFacts {
  switch (flight.kind) {
    case 'chain':
      return readCertificateFacts(flight.ders, { roots });
    case 'hidden':
      return flight;
    case 'unreadable':
      return { kind: 'unreadable' };
  }
}
