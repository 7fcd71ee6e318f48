import { isIPv6 } from 'node:net';
import { type Command, Option } from 'commander';
import { z } from 'zod';
import { createClient, notInForce } from '#cli/client/client.js';
import { type Output, parseReply, print, remote } from '#cli/client/remote.js';
import { CliError, RefusedError } from '#cli/errors/command-error.js';
import { ownerSchema, ownerText, protocolName } from '#cli/observe/flow-words.js';
import { type Style, styleOf } from '#cli/output/style.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { asWord } from '../completion/candidates.js';
import { numberUpTo } from '../number.js';
import { atLines, readValidSource, singletonOf } from './policy-source.js';

const explainedSchema = z.looseObject({
  decision: z.string(),
  effective_action: z.string(),
  mode: z.string(),
  source_group: z.string().nullable(),
  rule: z.string().nullable(),
  reason: z.string(),
  enforced_instead: z.number().nullish(),
  reply_to: z
    .object({
      src: z.string(),
      dst: z.string(),
      proto: z.number(),
      src_port: z.number().optional(),
      dst_port: z.number().optional(),
      icmp_type: z.number().optional(),
      icmp_code: z.number().optional(),
    })
    .nullish(),
  owners: z.object({ source: ownerSchema, destination: ownerSchema }).optional(),
  selected_by: z.looseObject({ integration: z.string() }).nullish(),
  walk: z.array(
    z.object({
      source_group: z.string().nullable(),
      rule: z.string().nullable(),
      matched: z.boolean(),
      why: z.string(),
    }),
  ),
  walk_omitted: z.number(),
  unknown: z.array(z.string()).default([]),
});
type Explained = z.infer<typeof explainedSchema>;

type Question = {
  readonly src: string;
  readonly query?: string;
  readonly dst?: string;
  readonly proto?: string;
  readonly srcPort?: number;
  readonly dstPort?: number;
  readonly icmpType?: number;
  readonly icmpCode?: number;
  readonly hostname?: string;
  readonly interface?: string;
  readonly sni?: string;
  readonly hello?: string;
  readonly method?: string;
  readonly path?: string;
  readonly header?: readonly string[];
};

export function addExplainCommand(policy: Command, terminal: Terminal): void {
  remote(policy.command('explain'))
    .description('explain why a packet or a DNS lookup is allowed or denied: all evaluated groups and rules')
    .requiredOption('--src <address>', 'the source address of the packet')
    .option('--dst <address>', 'the destination address of the packet')
    .option('--proto <protocol>', 'tcp, udp, icmp, icmpv6, or a number (default: tcp if a port is given)')
    .option('--src-port <port>', 'the source port of the packet', numberUpTo(65_535))
    .option('--dst-port <port>', 'the destination port of the packet', numberUpTo(65_535))
    .option(
      '--icmp-type <type>',
      'the ICMP type of the packet (default: echo request: 8, or 128 of ICMPv6)',
      numberUpTo(255),
    )
    .option('--icmp-code <code>', 'the ICMP code of the packet', numberUpTo(255))
    .option('--interface <name>', 'the interface on which the packet arrives')
    .option('--hostname <hostname>', 'assume that the destination was looked up by this name')
    .option('--sni <name>', 'the server name in the TLS ClientHello')
    .addOption(
      new Option('--hello <kind>', 'the first bytes that the client sends').choices(['plain', 'ech', 'not_tls']),
    )
    .option('--method <method>', 'the method of the HTTP request')
    .option('--path <url-path>', 'the path of the HTTP request, with the query')
    .option('--header <header>', 'a header of the HTTP request, as "Name: value"; may be repeated', collected)
    .option('--query <hostname>', 'explain the DNS lookup of this name instead of a packet')
    .option('-f, --file <file>', 'explain with this policy instead of the active one; - reads standard input')
    .action(async ({ file, ...options }: Output & Question & { file?: string }) => {
      const question = questionOf(options);
      const client = createClient(options, terminal);
      const source = file === undefined ? undefined : await readValidSource(file, terminal);
      const body = source === undefined ? question : { ...question, policy: singletonOf(source) };
      const answer = await client
        .request('/api/v1/policy/explain', { method: 'POST', body })
        .catch((error: unknown) => {
          if (source === undefined || !(error instanceof RefusedError)) throw error;
          const isAboutPolicy = error.problems.every(({ pointer }) => pointer.startsWith('/policy/'));
          throw isAboutPolicy ? atLines(error, source, source.form === 'singleton' ? '/policy' : '') : error;
        });
      const explained = parseReply(explainedSchema, answer);
      print(terminal, options.output, explained, (shown) => text(shown, file, styleOf(terminal)));
    });
}

const ECHO_REQUEST = 8;
const ECHO_REQUEST_OF_ICMPV6 = 128;

/** Builds the request body of the explain operation: a question about a packet or a DNS lookup. */
function questionOf({
  src,
  query,
  dst,
  proto,
  srcPort,
  dstPort,
  icmpType,
  icmpCode,
  interface: comesIn,
  hostname,
  sni,
  hello,
  ...http
}: Question): object {
  const connection = { sni, tls: hello === undefined ? undefined : { hello }, http: requestOf(http) };
  const packet = {
    ...connection,
    dst,
    src_port: srcPort,
    dst_port: dstPort,
    icmp_type: icmpType,
    icmp_code: icmpCode,
    interface: comesIn,
    hostname,
  };
  if (query !== undefined) {
    if (proto !== undefined || Object.values(packet).some((value) => value !== undefined))
      throw new CliError(
        '--query explains a DNS lookup, which has only a source and a name: remove the destination, protocol and port',
        { exitCode: 2 },
      );
    return { src, query };
  }
  if (dst === undefined)
    throw new CliError('give --dst to explain a packet, or --query to explain a DNS lookup', { exitCode: 2 });
  const meant = proto ?? (dstPort === undefined ? undefined : 'tcp');
  if (meant === undefined) throw new CliError('give --proto: tcp, udp, icmp, icmpv6, or a number', { exitCode: 2 });
  const isIcmp = meant.toLowerCase() === 'icmp' || meant === '1';
  const isIcmpv6 = meant.toLowerCase() === 'icmpv6' || meant === '58';
  const type = icmpType ?? (isIcmp ? ECHO_REQUEST : isIcmpv6 && isIPv6(src) ? ECHO_REQUEST_OF_ICMPV6 : undefined);
  return { src, ...packet, icmp_type: type, proto: /^\d+$/.test(meant) ? Number(meant) : meant };
}

function requestOf({ method, path, header }: Pick<Question, 'method' | 'path' | 'header'>): object | undefined {
  if (method === undefined && path === undefined && header === undefined) return undefined;
  const headers: Record<string, string[]> = {};
  for (const line of header ?? []) {
    const colon = line.indexOf(':');
    if (colon < 1) throw new CliError(`--header ${line}: write it as "Name: value"`, { exitCode: 2 });
    const name = line.slice(0, colon).trim().toLowerCase();
    headers[name] = [...(headers[name] ?? []), line.slice(colon + 1).trim()];
  }
  const { host, ...others } = headers;
  const [own, search] = (path ?? '').split(/\?(.*)/s);
  const query: Record<string, string[]> = {};
  for (const [key, value] of new URLSearchParams(search ?? '')) query[key] = [...(query[key] ?? []), value];
  return {
    method,
    host: host?.[0],
    path: path === undefined ? undefined : own,
    query: search === undefined ? undefined : query,
    headers: header === undefined ? undefined : others,
  };
}

const collected = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];

function text(
  {
    decision,
    effective_action: action,
    mode,
    reason,
    walk,
    walk_omitted: omitted,
    unknown,
    reply_to,
    ...by
  }: Explained,
  file: string | undefined,
  style: Style,
): string {
  const instead = by.enforced_instead == null ? '' : `${style.warn(notInForce(by.enforced_instead))}\n`;
  const softened = decision !== action ? `, and passes: the mode is ${mode}` : '';
  const decider =
    by.source_group === null ? '' : ` by group ${by.source_group}${by.rule === null ? '' : `, rule ${by.rule}`}`;
  const rows = walk.map((step) => [
    step.matched ? style.good('●') : style.dim('○'),
    step.source_group ?? '(policy)',
    step.rule ?? '-',
    step.why,
  ]);
  const missing = unknown.length === 0 ? '' : `\nnot given, and can change the decision: ${unknown.join(', ')}`;
  const ends = ownersOf({ owners: by.owners, selected_by: by.selected_by });
  // Insert the number of omitted steps before the last row: the last row is the step that decided.
  if (omitted > 0) rows.splice(-1, 0, ['', `… ${omitted} more`, '', '']);
  return `${instead}${style.bold(style.verdict(decision))}${decider}${softened}\n${reason}${missing}${replyHint(reply_to, file)}${ends}\n${rows.length === 0 ? '' : `\n${table(['', 'GROUP', 'RULE', 'WHY'], rows)}`}`;
}

/** Returns a line with the command that explains the flow in which a denied packet can be a reply. */
function replyHint(opener: Explained['reply_to'], file: string | undefined): string {
  if (opener == null) return '';
  const given = Object.entries({ ...opener, proto: protocolName(opener.proto), file });
  const flags = given.flatMap(([name, value]) =>
    value === undefined ? [] : `--${name.replace('_', '-')} ${typeof value === 'string' ? asWord(value) : value}`,
  );
  return `\nif this packet is a reply, it passes, because replies of an allowed flow need no rule; explain the flow: weir policy explain ${flags.join(' ')}`;
}

/**
 * Returns a line for each address of the flow that a Kubernetes object owns, such as `source: pod
 * shop/web-5d4f of prod`.
 */
function ownersOf({ owners, selected_by: selector }: Pick<Explained, 'owners' | 'selected_by'>): string {
  const { integration: _, ...labels } = selector ?? {};
  const selected = selector == null ? '' : `, selected by ${JSON.stringify(labels)}`;
  const ends = [
    ...(owners?.source == null ? [] : [`source: ${ownerText(owners.source)}${selected}`]),
    ...(owners?.destination == null ? [] : [`destination: ${ownerText(owners.destination)}`]),
  ];
  return ends.map((end) => `\n${end}`).join('');
}
