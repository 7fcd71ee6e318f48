import { z } from 'zod';
import { WIRETAP_TYPES, WIRETAP_VERDICTS, type WiretapFilter } from '#observe/wiretap/wiretap-filter.js';
import { parseCidr } from '#policy/model/ipv4.js';
import { parsePorts } from '#policy/model/parse-ports.js';
import { parseProtocol } from '#policy/model/protocol.js';
import { ApiError } from './errors.js';
import { scope } from './nodes/ask-nodes.js';
import { FEW, few, listOf, oneOrMore } from './query-parameters.js';

const HOSTNAME = /^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$/;
const DURATION = /^(\d{1,7})(ms|s|m)$/;
const UNIT_MS = { ms: 1, s: 1_000, m: 60_000 } as const;

const wordOf =
  <W extends string>(words: readonly W[]) =>
  (text: string): W | undefined =>
    words.find((word) => word === text);

const networks = listOf(
  (text) => parseCidr(text)?.prefix,
  'Must be an IPv4 address or a CIDR such as 10.0.0.0/8.',
).refine(few, FEW);

export const wiretapQuery = z.strictObject({
  scope: scope.describe(
    '`cluster`: the messages of all nodes; each names its node. `node`: only messages of this node.',
  ),
  src: networks,
  dst: networks,
  port: listOf((text) => {
    const parsed = parsePorts(text);
    return 'range' in parsed ? parsed.range : undefined;
  }, 'Must be a port, or a range such as 8000-8100.')
    .refine(few, FEW)
    .describe('The port of either side.'),
  proto: listOf((text) => {
    const protocol = parseProtocol(/^\d{1,3}$/.test(text) ? Number(text) : text);
    return protocol === 'any' ? undefined : protocol;
  }, 'Must be tcp, udp, icmp, or a number from 0 to 255.').refine(few, FEW),
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
  verdict: listOf(wordOf(WIRETAP_VERDICTS), `Must be one of ${WIRETAP_VERDICTS.join(', ')}.`),
  type: listOf(wordOf(WIRETAP_TYPES), `Must be one of ${WIRETAP_TYPES.join(', ')}.`),
  replay: z
    .string()
    .regex(DURATION, 'Must be a duration such as 10s or 500ms.')
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
export function replayOf({ replay }: WiretapQuery, keptMs: number): number {
  const [, count = '0', unit = 'ms'] = DURATION.exec(replay ?? '0ms') ?? [];
  const wantedMs = Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS];
  if (wantedMs <= keptMs) return wantedMs;
  const message = `No more than the last ${keptMs} ms are kept (wiretap.replay).`;
  throw new ApiError('invalid_query', message, [{ pointer: '?replay', code: 'invalid_parameter', message }]);
}
