import { type AddressSpace, everythingIn, type FamilySpans, type Span } from '#analysis/engine/address-space.js';
import { itemAt } from '#arrays/read.js';
import type { AddressSet } from '#contracts/analysis/flow-region.js';

/** The maximum number of networks of each family in an answer for one set. */
const LISTED = 12;

/**
 * Returns a set of addresses (ascending ranges of one or both IP families). Those of a family are a list of
 * networks, or one network with exceptions, whichever is shorter.
 */
export function addressSet(families: readonly FamilySpans[]): AddressSet {
  const sets = families.map(setOfFamily);
  return {
    networks: sets.flatMap(({ networks }) => networks),
    except: sets.flatMap(({ except }) => except),
    omitted: sets.reduce((sum, { omitted }) => sum + omitted, 0),
    addresses: sets.reduce((sum, { addresses }) => sum + addresses, 0n).toString(),
  };
}

/** Whether a set has all addresses of one family, and no others. */
export const isEverything = ({ networks, except }: AddressSet, space: AddressSpace): boolean =>
  networks.length === 1 && except.length === 0 && networks[0] === itemAt(space.networksOf(everythingIn(space)), 0);

function setOfFamily({ spans, space }: FamilySpans): Omit<AddressSet, 'addresses'> & { readonly addresses: bigint } {
  const addresses = spans.reduce((sum, span) => sum + space.sizeOf(span), 0n);
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
