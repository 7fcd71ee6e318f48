import type { TLSSocket } from 'node:tls';
import type { RequestFacts } from '#contracts/http-facts.js';
import type { Decided, Step } from '#policy/evaluate/connection-steps.js';
import type { Connection } from '../http/canonical.js';
import type { RefusedReason } from '../refused-reason.js';
import type { ServerLink } from './server-link.js';

/** What a session between a client and a server is made of, and whom it asks. */
export type SessionPorts = {
  readonly client: TLSSocket;
  /** Of five seconds: a timer for each connection would be set anew with every packet. */
  readonly clock: { readonly tick: number };
  /** Verified: the client was shown a certificate because of it. */
  readonly link: ServerLink;
  readonly connection: Connection;
  readonly denied: '403' | 'reset';
  /** Judges and tells. */
  judge(request: RequestFacts): Decided;
  /** A response that broke the rule which let the request pass. */
  tellBroken(request: RequestFacts, step: Step, matcher: string): void;
  refuse(reason: RefusedReason): void;
  over(): void;
};
