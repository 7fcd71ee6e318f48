import type { EnvelopeMode, Form, PolicyConfig } from '#contracts/policy-document.js';

/**
 * A stored policy as `GET /api/v1/policy` shows it: each group with its mode (D5). What is sent back by a singleton
 * `PUT` is stored in the singleton form as it comes, and needs no way back.
 */
export function singletonView(config: PolicyConfig, form: Form, mode: EnvelopeMode): PolicyConfig {
  if (form === 'singleton' || config.source_groups === undefined) return config;
  const groupMode = mode === 'disabled' ? 'enforce' : mode;
  return {
    ...config,
    source_groups: config.source_groups.map(({ id, ...group }) => ({ id, mode: groupMode, ...group })),
  };
}
