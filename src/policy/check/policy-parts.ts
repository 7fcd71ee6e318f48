import type { ActionWord, EnvelopeMode, Form, PolicyConfig, SourceGroupConfig } from '#contracts/policy-document.js';
import type { Action, Group, Mode, Policy } from '#contracts/policy-model.js';
import { normaliseAction, normaliseGroup } from '#policy/model/normalise.js';
import { type GroupWarnings, type LintContext, lintGroup } from './group-lint.js';
import { instructionsOf } from './rule-expressions.js';

/** A policy in parts, so that one group can be written without processing the others again. */
export type PolicyParts = {
  readonly form: Form;
  /**
   * The mode of the record. It applies to `default_policy` and the fallback, and in the envelope form to all
   * groups (D4).
   */
  readonly mode: EnvelopeMode;
  readonly defaultPolicy: ActionWord | undefined;
  /** In the order of the document. */
  readonly groups: readonly GroupPart[];
};

export type GroupPart = {
  /** The JSON text of the group; undefined if it is not kept. */
  readonly text: Uint8Array | undefined;
  readonly priority: number | undefined;
  readonly group: Group;
  /** The integrations of the dynamic sources, in their order. */
  readonly integrations: readonly string[];
  /** The total of the regular expressions of the group. */
  readonly instructions: number;
  /** Pointers are relative to the group. */
  readonly warnings: GroupWarnings;
};

export type PartsOptions = { readonly form: Form; readonly mode: EnvelopeMode; readonly context: LintContext };

/**
 * The parts of a valid document. `texts` are the JSON texts of its groups, in their order, if they are to be
 * kept.
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
  const group = normaliseGroup(config, pointerAt(index), form === 'envelope' ? ofRecord : (config.mode ?? ofRecord));
  return {
    text,
    priority: config.priority,
    group,
    integrations: (config.sources.kubernetes ?? []).map(({ integration }) => integration),
    instructions: instructionsOf(group.rules),
    warnings: lintGroup(config, group, context),
  };
}

/** Updates the pointer of each group to its current index. */
export function renumbered(groups: readonly GroupPart[]): GroupPart[] {
  return groups.map((part, index) => {
    const pointer = pointerAt(index);
    return part.group.pointer === pointer ? part : { ...part, group: { ...part.group, pointer } };
  });
}

/** The model of the policy. A disabled policy is modelled as if it were enforced. */
export function policyOf(parts: PolicyParts, fallback: Action): Policy {
  const mode = recordMode(parts.mode);
  return {
    groups: walkOf(parts.groups).map(({ group }) => group),
    default:
      parts.defaultPolicy === undefined
        ? { action: fallback, mode, from: 'fallback' }
        : { action: normaliseAction(parts.defaultPolicy), mode, from: 'default_policy' },
  };
}

/**
 * The groups by ascending priority. The default priority is the index in the list. Groups with equal priority
 * keep their sequence (D3).
 */
export function walkOf(groups: readonly GroupPart[]): readonly GroupPart[] {
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
