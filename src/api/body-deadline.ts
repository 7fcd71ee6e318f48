import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from './errors.js';

/** Answers 408 when a request's body has not arrived in time. Node has one such limit a server; routes differ here. */
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
 * A caller that was answered while it still sends finds the answer only if its bytes are taken until it looks; Node
 * does that without a limit.
 */
export function endBody({ raw }: FastifyRequest, lingerMs: number): void {
  if (raw.complete || raw.destroyed) return;
  const timer = setTimeout(() => raw.destroy(), lingerMs);
  const stop = () => clearTimeout(timer);
  raw.once('end', stop).once('close', stop);
}
