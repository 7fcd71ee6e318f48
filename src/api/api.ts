import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Session } from '#store/tokens/sessions.js';
import type { TokenIdentity } from '#store/tokens/token-verdict.js';
import type { ApiError } from './errors/errors.js';
import type { Management } from './management.js';

/** The type of the Fastify instance on which all routes are registered. */
export type Api = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>;

/** Registers the routes of one resource of the API. */
export type Resource = (api: Api, management: Management) => void;

/**
 * A server of the node. `management`: the API. `peers`: for the other nodes of the cluster. `metrics`: for
 * scrapes and probes.
 */
export type Listener = 'management' | 'peers' | 'metrics';

/**
 * The clients that may call a route (D36). `public`: all clients. `read`: clients with a valid token.
 * `write`: clients with an admin token. `sign_in`: all clients; the route itself authenticates those that
 * sign in, and requests count for the limit, other than those to public routes. At the peer listener, the
 * certificate of a node of the cluster takes the place of an admin token.
 */
export type Access = 'public' | 'sign_in' | 'read' | 'write';

declare module 'fastify' {
  interface FastifyContextConfig {
    /**
     * The clients that may call the route, for each listener that has the route. By default, only the
     * management API has the route, with `read` for GET and HEAD, and `write` for all other methods.
     */
    access?: Readonly<Partial<Record<Listener, Access>>>;
    /** Set if the request body is a policy of up to 64 MiB. The route receives the body as unparsed bytes. */
    policyBody?: true;
  }
  interface FastifyRequest {
    /** The authenticated client. Null if the route is public, and before the client is authenticated. */
    caller: TokenIdentity | null;
    /** The session whose cookie has authenticated the client; null with a token. */
    session: Session | null;
    /**
     * Counts a failed login from the client address of the request. Throws `too_many_failed_logins` after too
     * many failed logins; otherwise throws the given error.
     */
    refuseLogin: (refusal: ApiError) => Promise<never>;
    /** The clients that may call the route at this listener; null if the listener does not have the route. */
    access: Access | null;
    /** Returns whether the client may still use the route. A stream calls it repeatedly. */
    isStillAllowed: () => Promise<boolean>;
  }
}
