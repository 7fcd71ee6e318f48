import type { FastifyReply } from 'fastify';

/** Returns a signal that is aborted if the client closes the connection before it has the response. */
export function hangUpOf(reply: FastifyReply): AbortSignal {
  const ended = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) ended.abort();
  });
  return ended.signal;
}
