import { api, bodyOf, type Schemas } from '../../api/client.js';
import { type Polled, usePolled } from '../../api/polled.js';
import { full, short, span } from '../../format.js';
import type { LineNote } from './editor.js';
import type { RulePlace } from './policy-text.js';

export type Hit = Schemas['Hits']['items'][number];
export type RuleHits = {
  readonly since: string;
  readonly items: readonly Hit[];
  readonly byRule: ReadonlyMap<string, Hit>;
  /** Whether further rules have hits that are not loaded. */
  readonly isPart: boolean;
  readonly isPartial: boolean;
};

const MAX_PAGES = 10;
const keyOf = (group: string | null, rule: string | null) => `${group}\n${rule}`;

/** The hits of the policy in force; nothing for another policy, whose rules decide nothing. */
export function useHits(isActive: boolean): Polled<RuleHits | null> {
  return usePolled<RuleHits | null>(
    async (signal) => {
      if (!isActive) return null;
      const items: Hit[] = [];
      let cursor: string | null = null;
      for (let page = 0; ; page++) {
        const query: { limit: number; cursor?: string } = { limit: 1_000, ...(cursor === null ? {} : { cursor }) };
        const hits: Schemas['Hits'] = await bodyOf(api.GET('/api/v1/policy/hits', { params: { query }, signal }));
        items.push(...hits.items);
        cursor = hits.next_cursor;
        if (cursor !== null && page < MAX_PAGES - 1) continue;
        const byRule = new Map(items.map((hit) => [keyOf(hit.source_group, hit.rule), hit]));
        return { since: hits.since, items, byRule, isPart: cursor !== null, isPartial: hits.partial };
      }
    },
    5_000,
    String(isActive),
  );
}

export const hitOf = (hits: RuleHits | null, group: string | null, rule: string | null): Hit | undefined =>
  hits?.byRule.get(keyOf(group, rule));

/** The hits beside the rules of a text. A rule without a count is not in force. */
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
