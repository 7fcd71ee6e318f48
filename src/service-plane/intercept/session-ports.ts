import type { TLSSocket } from 'node:tls';
import type { RequestFacts } from '#contracts/http-facts.js';
import type { Decided, Step } from '#policy/evaluate/connection-steps.js';
import type { Connection } from '../http/canonical.js';
import type { RefusedReason } from '../refused-reason.js';
import type { ServerLink } from './server-link.js';

/** The parts that a session between a client and a server uses. */
export type SessionPorts = {
  readonly client: TLSSocket;
  /** Ticks of five seconds: a timer for each connection would be reset with every packet. */
  readonly clock: { readonly tick: number };
  /** Already verified: the client received its certificate only after that. */
  readonly link: ServerLink;
  readonly connection: Connection;
  readonly denied: '403' | 'reset';
  /** Evaluates a request, and reports the decision. */
  judge(request: RequestFacts): Decided;
  /** Reports a response that violates the rule that allowed its request. */
  tellBroken(request: RequestFacts, step: Step, matcher: string): void;
  refuse(reason: RefusedReason): void;
  over(): void;
};
