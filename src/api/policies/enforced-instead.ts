import type { Api } from '#api/api.js';
import type { Management } from '#api/management.js';

const HEADER = 'weir-enforced-instead';

/**
 * Adds the header `Weir-Enforced-Instead: N` to each response with stored policies while the kernel enforces
 * generation N instead of the active policy. This happens if the data folder was restored or replaced.
 */
export function tellEnforcedInstead(api: Api, { enforcedInstead }: Pick<Management, 'enforcedInstead'>): void {
  api.addHook('onSend', async ({ method, routeOptions: { url = '' } }, reply) => {
    if (method !== 'GET' || reply.statusCode >= 400 || !url.startsWith('/api/v1/polic')) return;
    const generation = await enforcedInstead();
    if (generation !== null) reply.header(HEADER, String(generation));
  });
}
