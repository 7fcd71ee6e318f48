import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { Caller, Management } from './management.js';

/** The Fastify instance that every route is written against. */
export type Api = FastifyInstance<Server, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>;

/** One resource: registers its routes. */
export type Resource = (api: Api, management: Management) => void;

/** Who may ask: anyone, either role, or an admin (D36). */
export type Access = 'public' | 'read' | 'write';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Left out: `read` for GET and HEAD, `write` for every other method. */
    access?: Access;
    /** The body is a policy: up to 64 MiB, kept as the bytes that were received. */
    policyBody?: true;
  }
  interface FastifyRequest {
    /** Set on every route that is not public. */
    caller: Caller | null;
  }
}
