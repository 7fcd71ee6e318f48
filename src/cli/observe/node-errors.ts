import { z } from 'zod';
import type { Terminal } from '#cli/output/terminal.js';
import { visible } from '#cli/output/visible.js';

/** The nodes without a response, in a response that combines the responses of several nodes. */
export const nodeErrorsSchema = z.array(z.object({ node_id: z.string(), error: z.string() })).optional();

type Coverage = {
  readonly partial: boolean;
  readonly node_errors: readonly { readonly node_id: string; readonly error: string }[];
};

/** Collects the nodes without a response over several pages, and prints them to standard error. */
export class NodeErrors {
  readonly #errors = new Map<string, string>();

  /** The members that say which nodes did not respond, for a JSON object that combines all pages. */
  get coverage(): Coverage {
    const errors = [...this.#errors].map(([node, error]) => ({ node_id: node, error }));
    return { partial: errors.length > 0, node_errors: errors };
  }

  /** The ids of the nodes without a response, as one text. */
  get nodes(): string {
    return [...this.#errors.keys()].sort().join(' ');
  }

  add(errors: z.infer<typeof nodeErrorsSchema>): void {
    for (const { node_id: node, error } of errors ?? []) this.#errors.set(node, error);
  }

  report(terminal: Terminal): void {
    for (const [node, error] of this.#errors) terminal.err(`${visible(node)} did not respond: ${visible(error)}\n`);
  }
}

export const scopeParameter = (allNodes: boolean | undefined): 'cluster' | undefined =>
  allNodes === true ? 'cluster' : undefined;
