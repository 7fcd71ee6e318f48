import type { z } from 'zod';
import { HitsSchema } from '#api/traffic/hits.schema.js';
import type { Management } from '../management.js';
import { askNodes } from './ask-nodes.js';

type Hits = z.infer<typeof HitsSchema>;
type ShownHit = Hits['items'][number];

const PATH = '/api/v1/policy/hits';

/**
 * Returns a page of the hits of all nodes: the sum for each rule and default. `parameters` are those of the
 * request. A node that enforces another policy or generation is a node error, because its rules differ.
 */
export async function hitsOfNodes(
  management: Management,
  own: Hits,
  parameters: URLSearchParams,
  unused: boolean | undefined,
): Promise<Hits> {
  const query = new URLSearchParams(parameters);
  query.delete('scope');
  // Filter by `unused` after the sum is known, because a rule is unused only if no node has a hit.
  query.delete('unused');
  const items = own.items.map((item) => ({ ...item }));
  let { since } = own;
  const differing: { node_id: string; error: string }[] = [];
  const coverage = await askNodes(management, `${PATH}?${query.toString()}`, HitsSchema, (node, hits) => {
    if (hits.generation !== own.generation || hits.policy_id !== own.policy_id) {
      differing.push({ node_id: node, error: `it enforces generation ${hits.generation}, not ${own.generation}` });
      return;
    }
    if (hits.since > since) since = hits.since;
    for (const [at, hit] of hits.items.entries()) items[at] = sumOf(items[at], hit);
  });
  const errors = [...coverage.node_errors, ...differing].sort((a, b) => (a.node_id < b.node_id ? -1 : 1));
  return {
    ...own,
    since,
    items: unused === undefined ? items : items.filter((item) => item.unused === unused),
    partial: errors.length > 0,
    node_errors: errors,
    nodes_queried: coverage.nodes_queried,
    nodes_responded: coverage.nodes_queried - errors.length,
  };
}

function sumOf(sum: ShownHit | undefined, hit: ShownHit): ShownHit {
  if (sum === undefined) return hit;
  const unused = sum.unused && hit.unused;
  return {
    ...sum,
    packets: sum.packets + hit.packets,
    bytes: sum.bytes + hit.bytes,
    last_hit: latest(sum.last_hit, hit.last_hit),
    unused,
    unused_since: unused ? latest(sum.unused_since, hit.unused_since) : null,
  };
}

const latest = (one: string | null, other: string | null): string | null =>
  one === null || (other !== null && other > one) ? other : one;
