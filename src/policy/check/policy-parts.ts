import type {
  ActionWord,
  EnvelopeMode,
  Form,
  PolicyConfig,
  SourceGroupConfig,
} from '#contracts/policy/policy-document.js';
import type { Action, Group, Mode, Policy } from '#contracts/policy/policy-model.js';
import { type GroupWarnings, type LintContext, lintGroup } from '#policy/check/warnings/group-lint.js';
import { normaliseAction, normaliseGroup } from '#policy/model/normalise.js';
import { instructionsOf } from './rule-expressions.js';

/**
 * A policy divided into its groups. A write of one group reuses the parts of all other groups without parsing
 * or validating them again.
 */
export type PolicyParts = {
  readonly form: Form;
  /**
   * The mode of the policy record. This mode applies to `default_policy` and the setting `policy.fallback`.
   * In the envelope form (policy with name and mode) it also applies to all groups (D4).
   */
  readonly mode: EnvelopeMode;
  readonly defaultPolicy: ActionWord | undefined;
  /** The source groups in the order of the document. */
  readonly groups: readonly GroupPart[];
};

export type GroupPart = {
  /** The JSON text of the group; undefined if `partsOf` was called without the texts. */
  readonly text: Uint8Array | undefined;
  readonly priority: number | undefined;
  readonly group: Group;
  /** The integration name of each Kubernetes selector of the group, in the order of the document. */
  readonly integrations: readonly string[];
  /** The total number of compiled instructions of the regular expressions in the group. */
  readonly instructions: number;
  /** The warnings about the group. Their pointers are relative to the group. */
  readonly warnings: GroupWarnings;
};

export type PartsOptions = { readonly form: Form; readonly mode: EnvelopeMode; readonly context: LintContext };

/**
 * Converts a valid document into parts. `texts` are the JSON texts of the groups in document order; each part
 * keeps its text.
 */
export function partsOf(document: PolicyConfig, options: PartsOptions, texts: readonly Uint8Array[] = []): PolicyParts {
  const { form, mode } = options;
  const configs = document.source_groups ?? [];
  const groups = configs.map((config, index) => groupPart(config, index, texts[index], options));
  return { form, mode, defaultPolicy: document.default_policy, groups };
}

export function groupPart(
  config: SourceGroupConfig,
  index: number,
  text: Uint8Array | undefined,
  { form, mode, context }: PartsOptions,
): GroupPart {
  const ofRecord = recordMode(mode);
  const ofGroup = form === 'envelope' ? ofRecord : (config.mode ?? ofRecord);
  const group = normaliseGroup(config, pointerAt(index), ofGroup, { ipv6: context.ipv6 === true });
  return {
    text,
    priority: config.priority,
    group,
    integrations: (config.sources.kubernetes ?? []).map(({ integration }) => integration),
    instructions: instructionsOf(group.rules),
    warnings: lintGroup(config, group, context),
  };
}

/**
 * Returns the groups after an insertion or removal, with new JSON pointers that match their indexes in the
 * list.
 */
export function renumbered(groups: readonly GroupPart[]): GroupPart[] {
  return groups.map((part, index) => {
    const pointer = pointerAt(index);
    return part.group.pointer === pointer ? part : { ...part, group: { ...part.group, pointer } };
  });
}

/** Returns the policy model of the parts. A disabled policy gives the same model as an enforced policy. */
export function policyOf(parts: PolicyParts, fallback: Action): Policy {
  const mode = recordMode(parts.mode);
  return {
    groups: inEvaluationOrder(parts.groups).map(({ group }) => group),
    default:
      parts.defaultPolicy === undefined
        ? { action: fallback, mode, from: 'fallback' }
        : { action: normaliseAction(parts.defaultPolicy), mode, from: 'default_policy' },
  };
}

/**
 * Returns the groups sorted by ascending priority (D3). A group without a priority has its index in the list
 * as priority. Groups with equal priority keep their order.
 */
export function inEvaluationOrder(groups: readonly GroupPart[]): readonly GroupPart[] {
  if (groups.every(({ priority }) => priority === undefined)) return groups;
  return groups
    .map((part, index) => ({ part, order: part.priority ?? index }))
    .sort((left, right) => left.order - right.order)
    .map(({ part }) => part);
}

function recordMode(mode: EnvelopeMode): Mode {
  return mode === 'disabled' ? 'enforce' : mode;
}

function pointerAt(index: number): string {
  return `/source_groups/${index}`;
}
