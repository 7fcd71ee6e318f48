import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Api } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import { isUnchanged } from '#api/requests/preconditions.js';
import type { ConsoleFile, ConsoleFiles } from './console-files.js';

const INDEX = 'index.html';
/** A path of a page has no dot, and a path of a file has one. */
const PAGE = /^[\w/-]*$/;

/**
 * The console runs scripts and styles of the node only. Text never becomes markup or code (Trusted Types),
 * and no page of another origin can show the console in a frame.
 */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const inflate = promisify(gunzip);

/**
 * Serves the console below `/console/` from memory. Each path of a page returns the document of the console,
 * which reads the path. The files need no token: the console signs in, and asks the API like any client.
 */
export function consoleResource(files: ConsoleFiles): (api: Api) => void {
  return (api) => {
    const options = { config: { access: { management: 'public' } }, schema: { hide: true } } as const;
    api.get('/', options, async (_request, reply) => reply.redirect('/console/', 302));
    api.get('/console', options, async (_request, reply) => reply.redirect('/console/', 308));
    api.get('/console/*', options, async (request, reply) => {
      const path = (request.params as { readonly '*': string })['*'];
      const file = files.get(path) ?? (PAGE.test(path) ? files.get(INDEX) : undefined);
      if (file === undefined) throw new ApiError('not_found');
      return send(file, request, reply);
    });
  };
}

async function send(file: ConsoleFile, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { contentType, gzip, etag, isImmutable } = file;
  reply.headers({
    vary: 'accept-encoding',
    'cache-control': isImmutable ? 'public, max-age=31536000, immutable' : 'no-cache',
    'content-security-policy': CONTENT_SECURITY_POLICY,
  });
  if (isUnchanged(request, reply, etag)) return reply.code(304).send();
  reply.type(contentType);
  if (acceptsGzip(request)) return reply.header('content-encoding', 'gzip').send(gzip);
  return reply.send(await inflate(gzip));
}

function acceptsGzip({ headers }: FastifyRequest): boolean {
  return /\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))/i.test(String(headers['accept-encoding'] ?? ''));
}
