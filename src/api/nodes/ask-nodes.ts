import { z } from 'zod';
import { append } from '#arrays/append.js';
import type { Management } from '../management.js';

const count = z.int().min(0);

/** The members of a response that combines the responses of several nodes (D31). */
export const coverageShape = {
  partial: z.boolean().describe('True if a node did not respond.'),
  node_errors: z
    .array(z.object({ node_id: z.string(), error: z.string() }))
    .describe('The nodes without a response, and the reason.'),
  nodes_queried: count,
  nodes_responded: count,
};
/** The query parameter `scope` of reads that concern one node or all nodes. */
export const scope = z.enum(['node', 'cluster'], { error: 'Must be node or cluster.' }).default('node');

export type Coverage = z.infer<z.ZodObject<typeof coverageShape>>;

/** The coverage (which nodes responded) of a response that concerns only this node. */
export const ONE_NODE: Coverage = { partial: false, node_errors: [], nodes_queried: 1, nodes_responded: 1 };

const problem = z.looseObject({ detail: z.string() });

/**
 * Sends a GET request to all other nodes, and calls `onResponse` with each response. Returns the coverage:
 * which nodes responded, including this node. `without`: nodes that get no request. `withinMs`: the time
 * limit in milliseconds for the responses.
 */
export async function askNodes<T>(
  { peers }: Pick<Management, 'peers'>,
  path: string,
  schema: z.ZodType<T>,
  onResponse: (node: string, body: T) => void,
  options: Parameters<Management['peers']['askAll']>[2] = {},
): Promise<Coverage> {
  const errors: { node_id: string; error: string }[] = [];
  const { asked, failures } = await peers.askAll(
    path,
    ({ node, status, body }) => {
      const read = status === 200 ? schema.safeParse(body) : null;
      if (read?.success === true) onResponse(node, read.data);
      else errors.push({ node_id: node, error: read === null ? problemOf(status, body) : NOT_UNDERSTOOD });
    },
    options,
  );
  append(
    errors,
    failures.map(({ node, error }) => ({ node_id: node, error })),
  );
  errors.sort((a, b) => (a.node_id < b.node_id ? -1 : 1));
  return {
    partial: errors.length > 0,
    node_errors: errors,
    nodes_queried: asked + 1,
    nodes_responded: asked + 1 - errors.length,
  };
}

const NOT_UNDERSTOOD = 'its response has another form; it can be of another version';

/** Returns the detail of a problem document (RFC 9457). */
export function problemOf(status: number, body: unknown): string {
  const read = problem.safeParse(body);
  return read.success ? read.data.detail : `it responded with the status ${status}`;
}
