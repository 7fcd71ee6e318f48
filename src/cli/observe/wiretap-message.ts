import { z } from 'zod';
import type { Style } from '#cli/output/style.js';
import { deciderOf, endpoint, ownedEndpoint, ownerSchema, protocolName } from './flow-words.js';

const text = z.string().nullish();
const number = z.number().nullish();
const names = z.array(z.string()).nullish();
const bothWays = z.object({ forward: z.number(), reply: z.number() }).nullish();
const messageSchema = z.looseObject({
  type: z.string(),
  node_id: text,
  time: text,
  src: text,
  src_port: number,
  src_names: names,
  src_owner: ownerSchema,
  dst: text,
  dst_port: number,
  dst_names: names,
  dst_owner: ownerSchema,
  translation: z.object({ dst: z.string(), dst_port: number }).nullish(),
  proto: number,
  icmp_id: number,
  icmp_type: number,
  icmp_code: number,
  verdict: text,
  effective_action: text,
  drop_reason: text,
  source_group: text,
  rule: text,
  source_groups: names,
  decided_by: text,
  packets: z.union([bothWays, z.number()]),
  bytes: bothWays,
  hostname: text,
  sni: text,
  http: z.object({ method: z.string(), host: z.string(), path: z.string() }).nullish(),
  reason: text,
  query_type: text,
  addresses: names,
  count: number,
  first_seen: text,
  where: text,
});
export type WiretapMessage = z.infer<typeof messageSchema>;

/** The schema of a frame: one message, or under load a list of messages. */
export const frameSchema = z.union([messageSchema.transform((message) => [message]), z.array(messageSchema)]);

export function wiretapLine(message: WiretapMessage, style: Style): string {
  const ofNode = message.node_id ?? null;
  const on = ofNode === null ? '' : ` on ${ofNode}`;
  if (message.type === 'lost')
    return style.lost(`${message.count ?? 0} messages lost${on} (${message.where ?? 'place unknown'})`);
  if (message.type === 'node_gone') return style.lost(`${ofNode}: no messages: ${message.reason ?? 'reason unknown'}`);
  if (message.type === 'node_back') return style.lost(`${ofNode}: its messages follow again`);
  const verdict = message.verdict ?? '-';
  const cells = [
    style.dim((message.time ?? '').slice('2026-01-31T'.length, -1).padEnd('12:00:00.000'.length)),
    ...(ofNode === null ? [] : [ofNode]),
    message.type.padEnd('flow_suspend'.length),
    style.verdict(verdict, verdict.padEnd('redirect'.length)),
    ...(message.type === 'dns' ? dnsCells(message) : packetCells(message)),
    ...foldedCells(message),
  ];
  return cells.join('  ').trimEnd();
}

/**
 * Returns the number of messages that the node combined into this one (`--fold`), such as `×12`; for a
 * message about lookups, the number of lookups. Empty for one.
 */
function foldedCells({ first_seen: firstSeen, count }: WiretapMessage): string[] {
  return typeof firstSeen === 'string' && typeof count === 'number' && count > 1 ? [`×${count}`] : [];
}

function packetCells(message: WiretapMessage): string[] {
  const { src, dst, proto, packets, bytes } = message;
  const protocol = proto === null || proto === undefined ? '-' : protocolName(proto);
  const from = ownedEndpoint(message.src_owner, endpoint(src ?? '?', message.src_port ?? message.icmp_id));
  const at = ownedEndpoint(message.dst_owner, endpoint(dst ?? '?', message.dst_port));
  const to = `${named(message.src_names, from)} → ${named(message.dst_names, at)}`;
  const icmp =
    typeof message.icmp_type === 'number' ? `type ${message.icmp_type} code ${message.icmp_code ?? 0}` : undefined;
  const carried =
    typeof packets === 'object' && packets !== null && bytes !== null && bytes !== undefined
      ? `${packets.forward}/${packets.reply} packets, ${bytes.forward}/${bytes.reply} bytes`
      : undefined;
  const { http, sni, translation } = message;
  const sentTo = translation == null ? undefined : `sent to ${endpoint(translation.dst, translation.dst_port)}`;
  const asked = http === null || http === undefined ? sni : `${http.method} ${http.host}${http.path}`;
  const about = [asked, sentTo, icmp, message.drop_reason, message.reason, carried].filter(
    (part) => typeof part === 'string',
  );
  return [protocol.padEnd('icmp'.length), to, deciderOf(message), about.join(', ')];
}

function dnsCells(message: WiretapMessage): string[] {
  const { src, hostname, query_type: type, addresses } = message;
  const led =
    addresses === null || addresses === undefined || addresses.length === 0 ? '' : ` = ${addresses.join(' ')}`;
  const asked = `${ownedEndpoint(message.src_owner, src ?? '?')} → ${type ?? '?'} ${hostname ?? '?'}${led}`;
  return ['dns ', asked, deciderOf(message)];
}

/** Returns the known hostnames of an address as text to append to the address. */
function named(known: readonly string[] | null | undefined, at: string): string {
  return known === null || known === undefined || known.length === 0 ? at : `${known.join(',')} (${at})`;
}
