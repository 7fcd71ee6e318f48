import type { EnvelopeMode, PolicyConfig, PolicyEnvelope } from '#contracts/policy/policy-document.js';
import type { Action, Policy } from '#contracts/policy/policy-model.js';
import type { InvalidDocument, Warning } from '#contracts/policy/policy-problem.js';
import type { ContainingGroups } from '#policy/check/shadow/containing-groups.js';
import { trimName, validateEnvelope, validatePolicy } from '#policy/check/validation/validate.js';
import type { ValidationContext } from '#policy/check/validation/validation-context.js';
import type { LintContext } from '#policy/check/warnings/group-lint.js';
import { lint } from '#policy/check/warnings/lint.js';
import { parseStrictJson } from '#policy/document/json.js';
import { type Outline, outlineOf } from '#policy/document/outline.js';
import type { ParsedPolicy } from './group-write.js';
import { partsOf, policyOf } from './policy-parts.js';

export type ReadContext = ValidationContext &
  LintContext & {
    /**
     * The mode of the stored policy. It applies to a request body without a mode of its own (singleton form);
     * in the other form (envelope), the body contains the mode.
     */
    readonly recordMode: EnvelopeMode;
    /**
     * The setting `policy.fallback` of the node: the action for packets if the policy has no
     * `default_policy`.
     */
    readonly fallback: Action;
    /** A cache of the comparisons between the sources of groups in the policy that was read before. */
    readonly containingGroups?: ContainingGroups;
  };

export type ReadPolicy =
  | {
      readonly ok: true;
      /** The JSON text of the PolicyConfig within the body, byte for byte as the client sent it. */
      readonly policyJson: Uint8Array;
      /**
       * The name without surrounding white space. Null if the body has no name, as in singleton form (without
       * name and mode).
       */
      readonly name: string | null;
      readonly parsed: ParsedPolicy;
      readonly policy: Policy;
      /** The warnings about the policy. Their pointers are relative to the request body. */
      readonly warnings: readonly Warning[];
    }
  | InvalidDocument;

/** Parses and validates the body of a policy write. Returns the policy model, or all problems of the body. */
export function readPolicy(body: Uint8Array | string, context: ReadContext): ReadPolicy {
  const envelope = context.form === 'envelope';
  const json = parseStrictJson(body, envelope ? ['policy', 'source_groups'] : ['source_groups']);
  if (!json.ok) return { ok: false, code: 'invalid_body', problems: json.problems };
  const problems = envelope ? validateEnvelope(json.value, context) : validatePolicy(json.value, context);
  if (problems.length > 0) return { ok: false, code: 'invalid_policy', problems };
  const whole = envelope ? (json.value as PolicyEnvelope) : inRecord(json.value as PolicyConfig, context.recordMode);
  const { policy, name } = whole;
  const span = envelope ? json.members.get('policy') : { start: 0, end: json.bytes.length };
  if (span === undefined) throw new RangeError('read a policy: the validated document has no field `policy`');
  const text = envelope ? json.bytes.slice(span.start, span.end) : json.bytes;
  const outline = outlineOf(text, Object.keys(policy).length > 0, json.list, span.start);
  return read(whole, text, name === undefined ? null : trimName(name), outline, context);
}

const inRecord = (policy: PolicyConfig, mode: EnvelopeMode): PolicyEnvelope => ({ policy, mode });

function read(
  { policy: config, mode }: PolicyEnvelope,
  policyJson: Uint8Array,
  name: string | null,
  outline: Outline,
  context: ReadContext,
): ReadPolicy {
  const { form, fallback, containingGroups, ipv6 } = context;
  // Copy the text: the caller of `readPolicy` may transfer `policyJson` to another thread, which detaches the
  // buffer of `policyJson`.
  const own = new Uint8Array(policyJson);
  const texts = outline.starts.map((start, place) => own.subarray(start, outline.ends[place]));
  const parts = partsOf(config, { form, mode, context }, texts);
  const policy = policyOf(parts, fallback);
  const base = form === 'envelope' ? '/policy' : '';
  const warnings = lint(parts.groups, policy, { containingGroups, ipv6 }).map((warning) => ({
    ...warning,
    pointer: base + warning.pointer,
  }));
  return { ok: true, policyJson, name, parsed: { parts, outline }, policy, warnings };
}
