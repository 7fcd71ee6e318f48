import type { EnvelopeMode, Form, PolicyConfig } from '#contracts/policy-document.js';

/**
 * Returns a stored policy as `GET /api/v1/policy` shows it: each group has its mode (D5). A client may send
 * this document back with a singleton `PUT`; the node then stores it in the singleton form.
 */
export function singletonView(config: PolicyConfig, form: Form, mode: EnvelopeMode): PolicyConfig {
  if (form === 'singleton' || config.source_groups === undefined) return config;
  const groupMode = mode === 'disabled' ? 'enforce' : mode;
  return {
    ...config,
    source_groups: config.source_groups.map(({ id, ...group }) => ({ id, mode: groupMode, ...group })),
  };
}
