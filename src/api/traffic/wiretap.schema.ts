import { z } from 'zod';
import { ApiError } from '#api/errors/errors.js';
import { scope } from '#api/nodes/ask-nodes.js';
import {
  duration,
  FEW,
  few,
  listOf,
  networks,
  oneOrMore,
  ports,
  protocols,
  wordsOf,
} from '#api/requests/query-parameters.js';
import { WIRETAP_TYPES, WIRETAP_VERDICTS, type WiretapFilter } from '#observe/wiretap/wiretap-filter.js';

const HOSTNAME = /^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$/;

export const wiretapQuery = z.strictObject({
  scope: scope.describe(
    '`cluster`: the messages of all nodes; each names its node. `node`: only messages of this node.',
  ),
  src: networks.refine(few, FEW),
  dst: networks.refine(few, FEW),
  port: ports.refine(few, FEW).describe('The port of either side.'),
  proto: protocols.refine(few, FEW),
  hostname: listOf((text) => {
    const name = text.toLowerCase().replace(/\.$/, '');
    return HOSTNAME.test(name) ? name : undefined;
  }, 'Must be a name, or `*.` before a name.')
    .refine(few, FEW)
    .describe(
      'A name in a DNS query, in a TLS ClientHello or in an HTTP request, or a name for which an address of either side is granted.',
    ),
  group: oneOrMore.optional().refine(few, FEW),
  rule: oneOrMore.optional().refine(few, FEW),
  verdict: wordsOf(WIRETAP_VERDICTS),
  type: wordsOf(WIRETAP_TYPES),
  replay: duration(0, Number.POSITIVE_INFINITY, 'Must be a duration such as 10s or 500ms.')
    .optional()
    .describe(
      'The stream begins with the messages of this last period, such as `10s`. The maximum is `wiretap.replay` of the configuration.',
    ),
});
type WiretapQuery = z.infer<typeof wiretapQuery>;

export function wiretapFilterOf(query: WiretapQuery): WiretapFilter {
  return {
    sources: query.src ?? [],
    destinations: query.dst ?? [],
    ports: query.port ?? [],
    protocols: query.proto ?? [],
    hostnames: query.hostname ?? [],
    groups: query.group ?? [],
    rules: query.rule ?? [],
    verdicts: query.verdict ?? [],
    types: query.type ?? [],
  };
}

/**
 * Returns the query parameter `replay` in milliseconds; 0 if it is absent. Throws `invalid_query` if the
 * value is greater than the time for which messages are kept.
 */
export function replayOf({ replay = 0 }: WiretapQuery, keptMs: number): number {
  if (replay <= keptMs) return replay;
  const message = `No more than the last ${keptMs} ms are kept (wiretap.replay).`;
  throw new ApiError('invalid_query', message, [{ pointer: '?replay', code: 'invalid_parameter', message }]);
}
