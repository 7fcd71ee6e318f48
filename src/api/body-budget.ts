import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from './errors.js';

/**
 * Limits the total memory of large request bodies. A body without a declared length counts with the largest
 * allowed size.
 */
export class BodyBudget {
  #inFlight = 0;
  constructor(
    private readonly totalBytes: number,
    private readonly largestBytes: number,
  ) {}

  /**
   * Reserves memory for the body of a request. Frees the reservation when the response is sent or the
   * connection closes. Throws `overloaded` if there is not enough memory.
   */
  take(request: FastifyRequest, reply: FastifyReply): void {
    const bytes = Math.min(Number(request.headers['content-length'] ?? this.largestBytes), this.largestBytes);
    if (this.#inFlight > 0 && this.#inFlight + bytes > this.totalBytes) throw new ApiError('overloaded');
    this.#inFlight += bytes;
    let taken = true;
    const release = () => {
      if (taken) this.#inFlight -= bytes;
      taken = false;
    };
    reply.raw.once('finish', release).once('close', release);
  }
}
