import type { TLSSocket } from 'node:tls';
import type { RequestFacts } from '#contracts/service-plane/http-facts.js';
import type { Decided, Step } from '#policy/evaluate/connection/connection-steps.js';
import type { Connection } from '#service-plane/http/authority.js';
import type { RefusedReason } from '../refused-reason.js';
import type { ServerLink } from './server-link.js';

/** The sockets and functions that an HTTP session between a client and a server uses. */
export type SessionPorts = {
  readonly client: TLSSocket;
  /**
   * The clock for timeouts, in ticks of five seconds. With separate timers, each packet would have to reset
   * the timer of its connection.
   */
  readonly clock: { readonly tick: number };
  /**
   * The connection to the server. The certificate of the server is already verified: the client receives a
   * leaf certificate only after the verification.
   */
  readonly link: ServerLink;
  readonly connection: Connection;
  readonly denied: '403' | 'reset';
  /** Evaluates a request by the policy, and reports the decision. */
  decide(request: RequestFacts): Decided;
  /** Reports a response that violates the rule that allowed its request. */
  tellBroken(request: RequestFacts, step: Step, matcher: string): void;
  refuse(reason: RefusedReason): void;
  /** Called when the session has ended. Closes the connection to the client. */
  over(): void;
  /**
   * Called in place of `over` to reset the connection to the client, so that the client cannot take an
   * incomplete response as complete.
   */
  reset(): void;
};
