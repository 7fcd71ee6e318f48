import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from './errors.js';

/** Bounds the memory that large bodies hold together. A body that does not say its length counts as the largest. */
export class BodyBudget {
  #inFlight = 0;
  constructor(
    private readonly totalBytes: number,
    private readonly largestBytes: number,
  ) {}

  /** Takes a request's body in until its answer is out. */
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
