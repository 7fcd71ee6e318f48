import type { AddressSpace, Span } from '#analysis/engine/address-space.js';
import { itemAt } from '#arrays/read.js';
import type { AddressSet } from '#contracts/analysis/flow-region.js';

/** The maximum number of networks in an answer for one set. */
const LISTED = 12;

/**
 * Returns the addresses of ascending spans as networks, or as one network and what is missing in it,
 * whichever is shorter.
 */
export function addressSet(spans: readonly Span[], space: AddressSpace): AddressSet {
  const addresses = spans.reduce((sum, span) => sum + space.sizeOf(span), 0n).toString();
  const networks = listed(spans, space);
  const except = exceptionsOf(spans, space);
  if (except !== null && 1 + except.missing.count < networks.count)
    return { networks: [except.around], except: except.missing.texts, omitted: except.missing.omitted, addresses };
  return { networks: networks.texts, except: [], omitted: networks.omitted, addresses };
}

type Listed = { readonly texts: readonly string[]; readonly count: number; readonly omitted: number };

function listed(spans: readonly Span[], space: AddressSpace): Listed {
  const texts: string[] = [];
  let count = 0;
  for (const span of spans) {
    const networks = space.networksOf(span);
    count += networks.length;
    for (const network of networks) if (texts.length < LISTED) texts.push(network);
  }
  return { texts, count, omitted: count - texts.length };
}

/** Returns the smallest network around the spans, and its addresses that are not in the spans. */
function exceptionsOf(spans: readonly Span[], space: AddressSpace): { around: string; missing: Listed } | null {
  const first = spans[0];
  const last = spans.at(-1);
  if (first === undefined || last === undefined) return null;
  const around = space.networkAround({ start: first.start, end: last.end });
  const gaps: Span[] = [];
  let from = around.start;
  for (const { start, end } of spans) {
    if (from < start) gaps.push({ start: from, end: start });
    from = end;
  }
  if (from < around.end) gaps.push({ start: from, end: around.end });
  return { around: itemAt(space.networksOf(around), 0), missing: listed(gaps, space) };
}

/** Returns the set as a text: `any`, or the networks and exceptions, separated by commas. */
export function addressText({ networks, except, omitted }: AddressSet, space: AddressSpace): string {
  const everything = everythingOf(space);
  const host = `/${space.bits}`;
  const nameOf = (network: string): string =>
    network === everything ? 'any' : network.endsWith(host) ? network.slice(0, -host.length) : network;
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  const text = networks.map(nameOf).join(', ');
  return except.length === 0 ? `${text}${more}` : `${text} except ${except.map(nameOf).join(', ')}${more}`;
}

/** Returns the network of all addresses, such as `0.0.0.0/0`. */
export const everythingOf = (space: AddressSpace): string =>
  space.networksOf(space.spanOf({ address: 0, length: 0 })).join();
