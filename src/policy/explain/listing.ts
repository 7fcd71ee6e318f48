import { formatAddress } from '#addresses/ip-address.js';
import { EMPTY_SET } from '#contracts/kubernetes/member-tables.js';
import type { IntervalPool, Intervals } from '#contracts/policy/interval-map.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { DESTINATION_MAP, NONE, type Program, portMapKey, SOURCE_PORT_MAP } from '#contracts/policy/program.js';
import { isAudited, NO_MATCH, rankOf, verdictOf } from '#contracts/policy/verdict-word.js';

const LAST_KEY = portMapKey(255, 0xffff);
const PROTOCOL_NAMES = new Map<number, string>(Object.entries(IPPROTO).map(([name, number]) => [number, name]));

/**
 * Formats a program (compiled policy) as text. Equal programs have equal texts. Intervals that match nothing
 * are omitted.
 */
export function listing(program: Program): string {
  return [
    `ranks ${program.ranks}`,
    ...section(
      'sources',
      intervalLines(program.sources, addresses, (list) => `list ${list}`),
    ),
    ...section('members', memberLines(program)),
    ...section('lists', listLines(program)),
    ...section('rule blocks', ruleBlockLines(program)),
    ...section(
      'destinations',
      poolLines('destination map', program.destinations, addresses, (portMap) => `port map ${portMap}`),
    ),
    ...section('port maps', poolLines('port map', program.portMaps, keys, value)),
    ...section('source-port maps', poolLines('source-port map', program.sourcePortMaps, sourcePorts, value)),
    ...section('names', nameLines(program)),
  ].join('\n');
}

/**
 * Formats a verdict word (rank of the deciding rule, audit bit and verdict) as text, such as `#12 deny`; `
 * audited` follows if the mode is audit.
 */
export function wordText(word: number): string {
  const verdict = verdictOf(word) ?? `verdict ${word & 7}`;
  return `#${rankOf(word)} ${verdict}${isAudited(word) ? ' audited' : ''}`;
}

/** Formats a protocol as a name such as `tcp`, or as `protocol N` if `IPPROTO` has no name for the number. */
export function protocolText(protocol: number): string {
  return PROTOCOL_NAMES.get(protocol) ?? `protocol ${protocol}`;
}

function section(title: string, lines: readonly string[]): readonly string[] {
  return lines.length === 0 ? [] : [title, ...lines.map((line) => `  ${line}`)];
}

/** Formats the rule lists of Kubernetes objects. A set of groups without a line uses the line `deny-only`. */
function memberLines({ members }: Program): readonly string[] {
  if (members === null) return [];
  const { bases, trees, lists, sets, selectors } = members;
  const setText = (low: number, end: number | undefined): string =>
    low === 0 ? 'deny-only' : between(`set ${low}`, `set ${(end ?? low + 1) - 1}`);
  return [
    ...selectors.map(({ key, groups }) => `selector ${key}: groups ${groups.join(' ')}`),
    ...sets.map((groups, at) => `set ${EMPTY_SET + at}: groups ${groups.join(' ')}`),
    ...intervalLines(bases, addresses, (base) => `base ${base}`),
    ...poolLines('base', trees, setText, (population) => `list ${lists[population]}`),
  ];
}

function listLines({ lists }: Program): readonly string[] {
  return Array.from(lists.defaults, (word, list) => {
    const ruleBlocks = lists.ruleBlocks.slice(lists.offsets[list], lists.offsets[list + 1]);
    const rules = ruleBlocks.length === 0 ? '' : `rule blocks ${ruleBlocks.join(' ')}, `;
    return `list ${list}: ${rules}default ${wordText(word)}`;
  });
}

function ruleBlockLines({ ruleBlocks, namePortMaps }: Program): readonly string[] {
  return Array.from(ruleBlocks.destinations, (map, ruleBlock) => {
    const wildcard = ruleBlocks.wildcards[ruleBlock] ?? NONE;
    const named = Array.from(namePortMaps.ruleBlocks.keys())
      .filter((at) => namePortMaps.ruleBlocks[at] === ruleBlock)
      .map((at) => `name ${namePortMaps.names[at]} ${portMapText(namePortMaps.portMaps[at] ?? NONE)}`);
    const parts = [
      ...(map === NONE ? [] : [`destination map ${map}`]),
      ...(wildcard === NONE ? [] : [`any destination port map ${wildcard}`]),
      ...(named.length === 0 ? [] : [`any name port map ${ruleBlocks.named[ruleBlock]}`]),
      ...named,
    ];
    return `rule block ${ruleBlock}: ${parts.join(', ')}`;
  });
}

function nameLines({ names }: Program): readonly string[] {
  return names.map(({ kind, text }, name) => `name ${name}: ${kind} ${text}`);
}

function portMapText(portMap: number): string {
  return portMap < DESTINATION_MAP ? `port map ${portMap}` : `destination map ${portMap - DESTINATION_MAP}`;
}

type RangeText = (low: number, end: number | undefined) => string;

function poolLines(
  title: string,
  pool: IntervalPool,
  range: RangeText,
  valueText: (value: number) => string,
): readonly string[] {
  const lines: string[] = [];
  for (let map = 0; map + 1 < pool.offsets.length; map++) {
    const starts = pool.starts.subarray(pool.offsets[map], pool.offsets[map + 1]);
    const values = pool.values.subarray(pool.offsets[map], pool.offsets[map + 1]);
    lines.push(`${title} ${map}`);
    for (const line of intervalLines({ starts, values }, range, valueText)) lines.push(`  ${line}`);
  }
  return lines;
}

function intervalLines(
  { starts, values }: Intervals,
  range: RangeText,
  valueText: (value: number) => string,
): readonly string[] {
  return Array.from(starts, (start, at) => ({ start, next: starts[at + 1], value: values[at] ?? NONE }))
    .filter((interval) => interval.value !== NONE && interval.value !== NO_MATCH)
    .map(({ start, next, value }) => `${range(start, next)} ${valueText(value)}`);
}

function value(number: number): string {
  return number < SOURCE_PORT_MAP ? wordText(number) : `source-port map ${number - SOURCE_PORT_MAP}`;
}

function addresses(low: number, end = 2 ** 32): string {
  return between(formatAddress(low), formatAddress(end - 1));
}

function sourcePorts(low: number, end = 2 ** 16): string {
  return between(`${low}`, `${end - 1}`);
}

/**
 * Formats a range of `portMapKey` values, such as `any`, `tcp`, `tcp/443-444` or `icmp/8.0`. A range over
 * several protocols gives several such texts, separated by commas.
 */
function keys(low: number, end = LAST_KEY + 1): string {
  if (low === 0 && end > LAST_KEY) return 'any';
  const first = Math.floor(low / 2 ** 16);
  const last = Math.floor((end - 1) / 2 ** 16);
  const low16 = low % 2 ** 16;
  const high16 = (end - 1) % 2 ** 16;
  if (first === last) return keysOf(first, low16, high16);
  const headIsWhole = low16 === 0;
  const tailIsWhole = high16 === 0xffff;
  const wholeFrom = headIsWhole ? first : first + 1;
  const wholeTo = tailIsWhole ? last : last - 1;
  return [
    ...(headIsWhole ? [] : [keysOf(first, low16, 0xffff)]),
    ...(wholeFrom < wholeTo ? [`protocols ${wholeFrom}-${wholeTo}`] : []),
    ...(wholeFrom === wholeTo ? [protocolText(wholeFrom)] : []),
    ...(tailIsWhole ? [] : [keysOf(last, 0, high16)]),
  ].join(', ');
}

function keysOf(protocol: number, low: number, high: number): string {
  const name = protocolText(protocol);
  if (low === 0 && high === 0xffff) return name;
  if (protocol !== IPPROTO.icmp) return `${name}/${between(`${low}`, `${high}`)}`;
  const wholeTypes = low % 256 === 0 && high % 256 === 255;
  const text = (key: number): string => (wholeTypes ? `${key >>> 8}` : `${key >>> 8}.${key & 255}`);
  return `${name}/${between(text(low), text(high))}`;
}

function between(low: string, high: string): string {
  return low === high ? low : `${low}-${high}`;
}
