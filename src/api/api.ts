import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Caller, Management } from './management.js';

/** The Fastify instance that every route uses. */
export type Api = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>;

/** Registers the routes of one resource. */
export type Resource = (api: Api, management: Management) => void;

/** The callers a route is for: all, both roles, or admins only (D36). */
export type Access = 'public' | 'read' | 'write';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Default: `read` for GET and HEAD, `write` for every other method. */
    access?: Access;
    /** The body is a policy of up to 64 MiB, passed on as the received bytes. */
    policyBody?: true;
  }
  interface FastifyRequest {
    /** Set for every route that is not public. */
    caller: Caller | null;
  }
}
