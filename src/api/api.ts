import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Caller, Management } from './management.js';

/** The type of the Fastify instance on which all routes are registered. */
export type Api = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>;

/** Registers the routes of one resource of the API. */
export type Resource = (api: Api, management: Management) => void;

/**
 * The clients that may call a route (D36). `public`: all clients. `read`: clients with a valid token.
 * `write`: clients with an admin token.
 */
export type Access = 'public' | 'read' | 'write';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The access of the route. The default is `read` for GET and HEAD, and `write` for all other methods. */
    access?: Access;
    /** Set if the request body is a policy of up to 64 MiB. The route receives the body as unparsed bytes. */
    policyBody?: true;
    /** Whether the peer listener has the route. `joining`: also for a node that has not joined. */
    peers?: boolean | 'joining';
  }
  interface FastifyRequest {
    /** The authenticated client. Null if the route is public, and before the client is authenticated. */
    caller: Caller | null;
    /** Returns whether the client may still use the route. A stream calls it repeatedly. */
    isStillAllowed: () => Promise<boolean>;
  }
}
