import type { EnvelopeMode, PolicyConfig, PolicyEnvelope } from './document.js';
import type { LintContext } from './group-lint.js';
import type { HeldPolicy } from './group-write.js';
import { type ListSpans, parseStrictJson } from './json.js';
import { lint } from './lint.js';
import type { Action, Policy } from './model.js';
import { outlineOf } from './outline.js';
import { partsOf, policyOf } from './parts.js';
import type { Problem, Warning } from './problem.js';
import type { SourceHolders } from './source-holders.js';
import { trimName, validateEnvelope, validatePolicy } from './validate.js';
import type { ValidationContext } from './validation.js';

export type ReadContext = ValidationContext &
  LintContext & {
    /** The mode of the record that a singleton body is written to; an envelope brings its own. */
    readonly recordMode: EnvelopeMode;
    /** The node's `policy.fallback`. */
    readonly fallback: Action;
    /** What is known of the policy that was read before. */
    readonly holders?: SourceHolders;
  };

export type ReadPolicy =
  | {
      readonly ok: true;
      /** The JSON text of the PolicyConfig alone, as it was sent. */
      readonly policyJson: Uint8Array;
      /** Trimmed; null if the envelope names none, and in the singleton form. */
      readonly name: string | null;
      readonly held: HeldPolicy;
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
  const envelope = context.form === 'envelope';
  const json = parseStrictJson(body, envelope ? ['policy', 'source_groups'] : ['source_groups']);
  if (!json.ok) return { ok: false, code: 'invalid_body', problems: json.problems };
  const problems = envelope ? validateEnvelope(json.value, context) : validatePolicy(json.value, context);
  if (problems.length > 0) return { ok: false, code: 'invalid_policy', problems };
  if (!envelope)
    return read(json.value as PolicyConfig, json.bytes, context.recordMode, null, '', json.list, 0, context);
  const { policy, mode, name } = json.value as PolicyEnvelope;
  const span = json.members.get('policy');
  if (span === undefined) throw new RangeError('an envelope without a policy was found valid');
  const { start, end } = span;
  const text = json.bytes.slice(start, end);
  return read(policy, text, mode, name === undefined ? null : trimName(name), '/policy', json.list, start, context);
}

function read(
  config: PolicyConfig,
  policyJson: Uint8Array,
  mode: EnvelopeMode,
  name: string | null,
  base: string,
  list: ListSpans | undefined,
  offset: number,
  context: ReadContext,
): ReadPolicy {
  const { form, fallback, holders } = context;
  const parts = partsOf(config, { form, mode, context });
  const outline = outlineOf(policyJson, Object.keys(config).length > 0, list, offset);
  const policy = policyOf(parts, fallback);
  const warnings = lint(parts.groups, policy, { holders }).map((warning) => ({
    ...warning,
    pointer: base + warning.pointer,
  }));
  return { ok: true, policyJson, name, held: { parts, outline }, policy, warnings };
}
