import type { EnvelopeMode, Form, PolicyConfig } from '#contracts/policy-document.js';

/**
 * Returns a stored policy as `GET /api/v1/policy` shows it (D5). In the envelope form only the record has a
 * mode, so the function copies this mode to each group; `disabled` becomes `enforce`. A client may send the
 * result back with `PUT /api/v1/policy`; the node then stores it in the singleton form.
 */
export function singletonView(config: PolicyConfig, form: Form, mode: EnvelopeMode): PolicyConfig {
  if (form === 'singleton' || config.source_groups === undefined) return config;
  const groupMode = mode === 'disabled' ? 'enforce' : mode;
  return {
    ...config,
    source_groups: config.source_groups.map(({ id, ...group }) => ({ id, mode: groupMode, ...group })),
  };
}
