import { z } from 'zod';

export const ownerShape = {
  integration: z.string(),
  kind: z.enum(['pod', 'node']),
  namespace: z.string().nullable().describe('Null for a node.'),
  name: z.string(),
};

export const OwnerSchema = z.object(ownerShape).meta({
  id: 'AddressOwner',
  description: 'The Kubernetes object that owns an address.',
  examples: [{ integration: 'prod', kind: 'pod', namespace: 'shop', name: 'web-5d4f' }],
});
