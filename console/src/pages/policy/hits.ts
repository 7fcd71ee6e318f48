import { useEffect, useRef } from 'preact/hooks';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { type Polled, usePolled } from '../../api/polled.js';
import { full, short, span } from '../../format.js';
import type { LineNote } from './editor.js';
import type { RulePlace } from './policy-text.js';

export type Hit = Schemas['Hits']['items'][number];
export type RuleHits = {
  readonly since: string;
  readonly items: readonly Hit[];
  readonly byRule: ReadonlyMap<string | null, ReadonlyMap<string | null, Hit>>;
  /** Whether the policy has further rules whose hit counts are not loaded. */
  readonly isPart: boolean;
  readonly isPartial: boolean;
};

const PAGE = 1_000;
const MAX_PAGES = 10;
/** For a policy with more rules than this, the page reads only the hit counts of the visible rules. */
export const MANY_RULES = 5_000;
const POLL_MS = 5_000;
const SETTLED_MS = 250;
/** The maximum length of the names of groups and rules in the URL of one request, in characters. */
const MAX_NAMES = 6_000;

type Query = { readonly group?: string[]; readonly rule?: string[]; readonly unused?: boolean };

export type HitsOf = {
  /** Whether the policy is in force. Rules of a policy that is not in force have no hits. */
  readonly isActive: boolean;
  readonly rules: readonly RulePlace[];
  /** The visible rules. For a large policy, only these have hit counts. */
  readonly shown: readonly RulePlace[];
  readonly isUnused: boolean;
};

/** Polls the hit counts of the policy in force; null for a policy that is not in force. */
export function useHits({ isActive, rules, shown, isUnused }: HitsOf): Polled<RuleHits | null> {
  const isLarge = rules.length > MANY_RULES;
  const queries = useRef<readonly Query[]>([]);
  queries.current = isLarge ? [...(isUnused ? [{ unused: true }] : []), ...queriesOf(shown)] : [{}];
  const hits = usePolled<RuleHits | null>(
    async (signal) => {
      if (!isActive) return null;
      const found: Schemas['Hits'][] = [];
      let isPart = isLarge;
      for (const query of queries.current) {
        const { pages, isWhole } = await pagesOf(query, signal);
        found.push(...pages);
        isPart ||= !isWhole;
      }
      const items = found.flatMap((page) => page.items);
      const since = found[0]?.since;
      if (since === undefined) return null;
      return { since, items, byRule: byRuleOf(items), isPart, isPartial: found.some(({ partial }) => partial) };
    },
    POLL_MS,
    `${isActive} ${isLarge}`,
  );
  const asked = JSON.stringify(queries.current);
  useEffect(() => {
    if (!isLarge) return;
    const timer = setTimeout(hits.again, SETTLED_MS);
    return () => clearTimeout(timer);
  }, [asked]);
  return hits;
}

/**
 * Returns requests for the hit counts of these rules. The responses also contain other rules with the same
 * ids.
 */
function queriesOf(shown: readonly RulePlace[]): readonly Query[] {
  const names = (of: (place: RulePlace) => string) => {
    const all = [...new Set(shown.map(of))];
    return all.join().length > MAX_NAMES ? undefined : all;
  };
  const [group, rule] = [names((place) => place.group), names((place) => place.rule)];
  if (shown.length === 0 || (group === undefined && rule === undefined)) return [];
  return [{ ...(group === undefined ? {} : { group }), ...(rule === undefined ? {} : { rule }) }];
}

async function pagesOf(query: Query, signal: AbortSignal) {
  const pages: Schemas['Hits'][] = [];
  for (let cursor: string | null = null; ; ) {
    const params = { query: { ...query, limit: PAGE, ...(cursor === null ? {} : { cursor }) } };
    const page: Schemas['Hits'] = await bodyOf(api.GET('/api/v1/policy/hits', { params, signal }));
    pages.push(page);
    cursor = page.next_cursor;
    if (cursor === null || pages.length === MAX_PAGES) return { pages, isWhole: cursor === null };
  }
}

export const hitOf = (hits: RuleHits | null, group: string | null, rule: string | null): Hit | undefined =>
  hits?.byRule.get(group)?.get(rule);

function byRuleOf(items: readonly Hit[]): RuleHits['byRule'] {
  const groups = new Map<string | null, Map<string | null, Hit>>();
  for (const hit of items) {
    let rules = groups.get(hit.source_group);
    if (rules === undefined) {
      rules = new Map();
      groups.set(hit.source_group, rules);
    }
    rules.set(hit.rule, hit);
  }
  return groups;
}

/** Returns the hit counts to show beside the rules of a text. A rule that is not in force has no count. */
export function lineNotes(rules: readonly RulePlace[], hits: RuleHits | null): readonly LineNote[] {
  if (hits === null) return [];
  const now = Date.now();
  const ago = (at: string) => span((now - new Date(at).getTime()) / 1_000);
  return rules.flatMap(({ group, rule, from }) => {
    const hit = hitOf(hits, group, rule);
    if (hit === undefined) return [];
    const title = hit.unused
      ? `unused${hit.unused_since === null ? '' : ` for ${ago(hit.unused_since)}`}`
      : `${full(hit.packets)} packets${hit.last_hit === null ? '' : `, the last ${ago(hit.last_hit)} ago`}`;
    return [{ at: from, text: hit.unused ? 'unused' : short(hit.packets), title, isQuiet: hit.unused }];
  });
}
