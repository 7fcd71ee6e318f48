import type { FastifyRequest } from 'fastify';
import type { Api } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';
import { wholeNumberOf } from '#contracts/whole-number.js';

const ENFORCED_INSTEAD = 'weir-enforced-instead';

const MIN_GENERATION = 'weir-min-generation';
const MAX_WAIT_MS = 2_000;

/**
 * Makes each read with the header `Weir-Min-Generation: N` wait until the node enforces generation N or a
 * later one. So a client reads its own write at another node of the cluster (D7). Public routes ignore the
 * header: otherwise a client without a token could keep many requests waiting.
 */
export function awaitMinGeneration(api: Api, { policies }: Pick<Management, 'policies'>): void {
  api.addHook('preHandler', async (request) => {
    if (!isRead(request)) return;
    const wanted = minGenerationOf(request);
    if (wanted === null || (await policies.reaches(wanted, MAX_WAIT_MS))) return;
    throw new ApiError(
      'generation_not_reached',
      `the node enforces generation ${policies.generation()}, and the request needs generation ${wanted}`,
    );
  });
}

function isRead({ method, access }: FastifyRequest): boolean {
  return (method === 'GET' || method === 'HEAD') && access !== 'public';
}

function minGenerationOf({ headers }: FastifyRequest): number | null {
  const value = headers[MIN_GENERATION];
  if (value === undefined) return null;
  const generation = typeof value === 'string' ? wholeNumberOf(value) : undefined;
  if (generation === undefined)
    throw new ApiError('invalid_header', 'Weir-Min-Generation must be one whole number in decimal digits');
  return generation;
}

/**
 * Adds the header `Weir-Enforced-Instead: N` to each response with stored policies while the kernel enforces
 * generation N instead of the active policy. This happens if the data folder was restored or replaced.
 */
export function tellEnforcedInstead(api: Api, { enforcedInstead }: Pick<Management, 'enforcedInstead'>): void {
  api.addHook('onSend', async ({ method, routeOptions: { url = '' } }, reply) => {
    if (method !== 'GET' || reply.statusCode >= 400 || !url.startsWith('/api/v1/polic')) return;
    const generation = await enforcedInstead();
    if (generation !== null) reply.header(ENFORCED_INSTEAD, String(generation));
  });
}
