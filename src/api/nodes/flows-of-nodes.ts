import type { z } from 'zod';
import { FlowsSchema } from '#api/traffic/flows.schema.js';
import { append } from '#arrays/append.js';
import type { Management } from '../management.js';
import { askNodes } from './ask-nodes.js';

type Flows = z.infer<typeof FlowsSchema>;

const PATH = '/api/v1/flows';

/**
 * Returns a page of the flows of all nodes: node by node, in the order of their ids. `own` is the page of
 * this node, and `parameters` are those of the request.
 */
export async function flowsOfNodes(
  management: Management,
  own: Flows,
  parameters: URLSearchParams,
  limit: number,
): Promise<Flows> {
  const query = new URLSearchParams(parameters);
  query.delete('scope');
  const pages = new Map([[management.findings.nodeId, own]]);
  const coverage = await askNodes(management, `${PATH}?${query.toString()}`, FlowsSchema, (node, page) =>
    pages.set(node, page),
  );
  const inOrder = [...pages].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, page]) => page);
  const items: Flows['items'] = [];
  let isMore = false;
  for (const page of inOrder) {
    const free = limit - items.length;
    append(items, page.items.slice(0, free));
    isMore ||= page.items.length > free || page.next_cursor !== null;
    // The flows of the next nodes are on a later page.
    if (page.next_cursor !== null) break;
  }
  const last = items.at(-1);
  return {
    matched: inOrder.reduce((sum, { matched }) => sum + matched, 0),
    items,
    next_cursor: isMore && last !== undefined ? `${last.id}@${last.node_id}` : null,
    ...coverage,
  };
}
