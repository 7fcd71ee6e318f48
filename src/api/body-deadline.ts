import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from './errors.js';

/**
 * Responds 408 if the body of a request has not arrived in time. Node has one such limit per server, but
 * routes need different ones.
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
 * A client that still sends its body sees an early response only if the rest of the body is read. Node would
 * read it without a time limit.
 */
export function endBody({ raw }: FastifyRequest, lingerMs: number): void {
  if (raw.complete || raw.destroyed) return;
  const timer = setTimeout(() => raw.destroy(), lingerMs);
  const stop = () => clearTimeout(timer);
  raw.once('end', stop).once('close', stop);
}
