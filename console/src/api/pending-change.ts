import { node } from '../node.js';
import { api, bodyOf } from './client.js';

/** Keeps or reverts the pending change of a generation. A later change is refused with 412, and stays. */
export async function endPendingChange(outcome: 'confirm' | 'revert', generation: number): Promise<void> {
  const params = { query: { generation } };
  await bodyOf(
    outcome === 'confirm'
      ? api.POST('/api/v1/policy/pending/confirm', { params })
      : api.POST('/api/v1/policy/pending/revert', { params }),
  );
  node.changed();
}
