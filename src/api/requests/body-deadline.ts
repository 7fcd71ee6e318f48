import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '#api/errors/errors.js';

/**
 * Responds with 408 if the request body has not arrived completely after `timeoutMs`. The time limit
 * `requestTimeout` of Node.js applies to the whole server, but routes need different limits.
 */
export function startBodyDeadline(request: FastifyRequest, reply: FastifyReply, timeoutMs: number): void {
  const { raw } = request;
  if (raw.complete) return;
  const timer = setTimeout(() => {
    if (!raw.complete && !reply.sent) void reply.send(new ApiError('request_timeout'));
  }, timeoutMs);
  const stop = () => clearTimeout(timer);
  raw.once('end', stop).once('close', stop);
  reply.raw.once('close', stop);
}

/**
 * Reads the rest of a request body after an early response, for at most `lingerMs`. If the connection closed
 * while the client still sends the body, the client might not receive the response. Node.js would read the
 * body without a time limit.
 */
export function endBody({ raw }: FastifyRequest, lingerMs: number): void {
  if (raw.complete || raw.destroyed) return;
  const timer = setTimeout(() => raw.destroy(), lingerMs);
  const stop = () => clearTimeout(timer);
  raw.once('end', stop).once('close', stop);
}
