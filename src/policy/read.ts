import type { EnvelopeMode, Form, PolicyConfig, PolicyEnvelope } from './document.js';
import { parseStrictJson } from './json.js';
import { type LintContext, lint } from './lint.js';
import type { Action, Policy } from './model.js';
import { normalise } from './normalise.js';
import type { Problem, Warning } from './problem.js';
import { trimName, validateEnvelope, validatePolicy } from './validate.js';
import type { ValidationContext } from './validation.js';

export type ReadContext = ValidationContext &
  LintContext & {
    /** The mode of the record that a singleton body is written to; an envelope brings its own. */
    readonly recordMode: EnvelopeMode;
    /** The node's `policy.fallback`. */
    readonly fallback: Action;
  };

export type ReadPolicy =
  | {
      readonly ok: true;
      readonly form: Form;
      readonly config: PolicyConfig;
      /** The JSON text of the PolicyConfig alone, as it was sent. */
      readonly policyJson: Uint8Array;
      readonly mode: EnvelopeMode;
      /** Trimmed; null if the envelope names none, and in the singleton form. */
      readonly name: string | null;
      readonly policy: Policy;
      /** Pointers are into the body, as those of problems are. */
      readonly warnings: readonly Warning[];
    }
  | {
      readonly ok: false;
      readonly code: 'invalid_body' | 'invalid_policy';
      readonly problems: readonly Problem[];
    };

/** From the body of a policy write to the model, or to everything that is wrong with it. */
export function readPolicy(body: Uint8Array | string, context: ReadContext): ReadPolicy {
  const json = parseStrictJson(body);
  if (!json.ok) return { ok: false, code: 'invalid_body', problems: json.problems };
  const envelope = context.form === 'envelope';
  const problems = envelope ? validateEnvelope(json.value, context) : validatePolicy(json.value, context);
  if (problems.length > 0) return { ok: false, code: 'invalid_policy', problems };
  if (!envelope) return read(json.value as PolicyConfig, json.bytes, context.recordMode, null, '', context);
  const { policy, mode, name } = json.value as PolicyEnvelope;
  const span = json.members.get('policy');
  if (span === undefined) throw new RangeError('an envelope without a policy was found valid');
  const policyJson = json.bytes.slice(span.start, span.end);
  return read(policy, policyJson, mode, name === undefined ? null : trimName(name), '/policy', context);
}

function read(
  config: PolicyConfig,
  policyJson: Uint8Array,
  mode: EnvelopeMode,
  name: string | null,
  base: string,
  context: ReadContext,
): ReadPolicy {
  const { form, fallback } = context;
  const policy = normalise(config, { form, mode, fallback });
  const warnings = lint(config, policy, context).map((warning) => ({ ...warning, pointer: base + warning.pointer }));
  return { ok: true, form, config, policyJson, mode, name, policy, warnings };
}
