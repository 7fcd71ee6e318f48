import type { EnvelopeMode, Form, PolicyConfig, PolicyEnvelope } from '#contracts/policy-document.js';
import type { Action, Policy } from '#contracts/policy-model.js';
import type { Problem, Warning } from '#contracts/policy-problem.js';
import { parseStrictJson } from '#policy/document/json.js';
import { type Outline, outlineOf } from '#policy/document/outline.js';
import type { LintContext } from './group-lint.js';
import type { HeldPolicy } from './group-write.js';
import { KnownGroups } from './known-groups.js';
import { lint } from './lint.js';
import { type GroupPart, type PolicyParts, partsOf, policyOf } from './policy-parts.js';
import { isOverPolicy } from './regex-validation.js';
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
    /** The policy that was read before, in the same surroundings: groups that it has in common are not read again. */
    readonly known?: PolicyParts | undefined;
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

/**
 * From the body of a policy write to the model, or to everything that is wrong with it. What is said of a body is the
 * same whatever policy is known.
 */
export function readPolicy(body: Uint8Array | string, context: ReadContext): ReadPolicy {
  const { known, form } = context;
  const groups = known?.form === form ? new KnownGroups(known) : undefined;
  return readWith(body, context, groups) ?? (readWith(body, context, undefined) as ReadPolicy);
}

/** Null where it takes all groups to say what is wrong, or where those that are known hold in another mode. */
function readWith(body: Uint8Array | string, context: ReadContext, groups: KnownGroups | undefined): ReadPolicy | null {
  const envelope = context.form === 'envelope';
  const json = parseStrictJson(body, envelope ? ['policy', 'source_groups'] : ['source_groups'], groups);
  if (!json.ok) return { ok: false, code: 'invalid_body', problems: json.problems };
  const document = groups === undefined ? json.value : withoutKnown(json.value, groups, context.form);
  const problems = envelope ? validateEnvelope(document, context) : validatePolicy(document, context);
  if (problems.length > 0) return isAnyKnown(groups) ? null : { ok: false, code: 'invalid_policy', problems };
  const whole = envelope ? (document as PolicyEnvelope) : inRecord(document as PolicyConfig, context.recordMode);
  if (isAnyKnown(groups) && !stillHolds(groups, whole, context)) return null;
  const { policy, mode, name } = whole;
  const span = envelope ? json.members.get('policy') : { start: 0, end: json.bytes.length };
  if (span === undefined) throw new RangeError('an envelope without a policy was found valid');
  const text = envelope ? json.bytes.slice(span.start, span.end) : json.bytes;
  const outline = outlineOf(text, Object.keys(policy).length > 0, json.list, span.start);
  const done = read(policy, text, mode, name === undefined ? null : trimName(name), outline, groups?.found, context);
  return isAnyKnown(groups) && done.ok && isOverPolicy(instructionsIn(done.held.parts)) ? null : done;
}

function instructionsIn({ groups }: PolicyParts): number {
  return groups.reduce((sum, { instructions }) => sum + instructions, 0);
}

const inRecord = (policy: PolicyConfig, mode: EnvelopeMode): PolicyEnvelope => ({ policy, mode });

function isAnyKnown(groups: KnownGroups | undefined): groups is KnownGroups {
  return groups !== undefined && groups.found.size > 0;
}

/** The same document without the groups that were not read again. */
function withoutKnown(value: unknown, groups: KnownGroups, form: Form): unknown {
  if (!isAnyKnown(groups)) return value;
  const strip = (policy: PolicyConfig): PolicyConfig => ({
    ...policy,
    source_groups: policy.source_groups?.filter((_, place) => !groups.found.has(place)),
  });
  if (form === 'singleton') return strip(value as PolicyConfig);
  const envelope = value as PolicyEnvelope;
  return { ...envelope, policy: strip(envelope.policy) };
}

function stillHolds(groups: KnownGroups, { policy, mode }: PolicyEnvelope, { known, integrations }: ReadContext) {
  return mode === known?.mode && groups.areValidWith(policy.source_groups ?? [], integrations);
}

function read(
  config: PolicyConfig,
  policyJson: Uint8Array,
  mode: EnvelopeMode,
  name: string | null,
  outline: Outline,
  known: ReadonlyMap<number, GroupPart> = new Map(),
  context: ReadContext,
): ReadPolicy {
  const { form, fallback, holders } = context;
  // The text itself is handed over, and may be gone then.
  const own = new Uint8Array(policyJson);
  const texts = outline.starts.map((start, place) => own.subarray(start, outline.ends[place]));
  const parts = partsOf(config, { form, mode, context }, { texts, parts: known });
  const policy = policyOf(parts, fallback);
  const base = form === 'envelope' ? '/policy' : '';
  const warnings = lint(parts.groups, policy, { holders }).map((warning) => ({
    ...warning,
    pointer: base + warning.pointer,
  }));
  return { ok: true, policyJson, name, held: { parts, outline }, policy, warnings };
}
