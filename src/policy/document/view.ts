import type { EnvelopeMode, Form, PolicyConfig } from '#contracts/policy-document.js';

/**
 * A stored policy as returned by `GET /api/v1/policy`: each group with its mode (D5). A client may send this
 * back by a singleton `PUT`. It is then stored in the singleton form, so no inverse function is necessary.
 */
export function singletonView(config: PolicyConfig, form: Form, mode: EnvelopeMode): PolicyConfig {
  if (form === 'singleton' || config.source_groups === undefined) return config;
  const groupMode = mode === 'disabled' ? 'enforce' : mode;
  return {
    ...config,
    source_groups: config.source_groups.map(({ id, ...group }) => ({ id, mode: groupMode, ...group })),
  };
}
