import { node } from '../node.js';
import { api, bodyOf } from './client.js';

/**
 * Keeps (`confirm`) or reverts the unconfirmed policy change with this generation number. If another change
 * is pending by now, the node refuses the request with 412, and that change stays.
 */
export async function endPendingChange(outcome: 'confirm' | 'revert', generation: number): Promise<void> {
  const params = { query: { generation } };
  await bodyOf(
    outcome === 'confirm'
      ? api.POST('/api/v1/policy/pending/confirm', { params })
      : api.POST('/api/v1/policy/pending/revert', { params }),
  );
  node.changed();
}
