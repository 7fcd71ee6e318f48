import type { TLSSocket } from 'node:tls';
import type { RequestFacts } from '#policy/http-facts.js';
import type { Decided, Step } from '#policy/inspection.js';
import type { Connection } from '../http/canonical.js';
import type { ServerLink } from './server-link.js';

/** Between two requests, and until a head is complete. */
export const IDLE_MS = 60_000;
/** While one is answered. */
export const BUSY_MS = 300_000;

/** What a session between a client and a server is made of, and whom it asks. */
export type SessionPorts = {
  readonly client: TLSSocket;
  /** Verified: the client was shown a certificate because of it. */
  readonly link: ServerLink;
  readonly connection: Connection;
  readonly denied: '403' | 'reset';
  /** Judges and tells. */
  judge(request: RequestFacts): Decided;
  /** A response that broke the rule which let the request pass. */
  tellBroken(request: RequestFacts, step: Step, matcher: string): void;
  refuse(reason: string): void;
  over(): void;
};
