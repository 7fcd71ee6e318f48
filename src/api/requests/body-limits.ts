import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '#api/errors/errors.js';

/**
 * Limits the total memory of policy bodies that are received or processed at the same time. A body without a
 * `Content-Length` is counted with the maximum size. Callers without the role admin can use only half of the
 * memory, so that their dry runs leave memory for the writes of admins. A single body is always accepted.
 */
export class BodyBudget {
  #inFlight = 0;
  constructor(
    private readonly totalBytes: number,
    private readonly largestBytes: number,
  ) {}

  /**
   * Reserves memory for the body of a request, until the response is sent or the connection closes. Throws
   * `overloaded` if other bodies leave too little memory. A body is always accepted while no other body is in
   * flight.
   */
  reserve(request: FastifyRequest, reply: FastifyReply): void {
    const limit = request.caller?.role === 'admin' ? this.totalBytes : this.totalBytes / 2;
    const bytes = Math.min(Number(request.headers['content-length'] ?? this.largestBytes), this.largestBytes);
    if (this.#inFlight > 0 && this.#inFlight + bytes > limit) throw new ApiError('overloaded');
    this.#inFlight += bytes;
    let isReserved = true;
    const release = () => {
      if (isReserved) this.#inFlight -= bytes;
      isReserved = false;
    };
    reply.raw.once('finish', release).once('close', release);
  }
}

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
