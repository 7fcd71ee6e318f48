import type { ActionWord, EnvelopeMode, Form } from '#contracts/policy/policy-document.js';
import type { ChangeSize, ItemCounts } from '#contracts/policy/revision.js';
import { parseStrictJson } from '#policy/document/json.js';
import { inEvaluationOrder, type PolicyParts } from './policy-parts.js';

/** A policy divided into its groups, for `changeSize`. The groups are in the order of evaluation. */
export type MeasuredPolicy = {
  readonly form: Form;
  readonly mode: EnvelopeMode;
  readonly defaultPolicy: ActionWord | undefined;
  readonly groups: readonly MeasuredGroup[];
};
/** `text`: the JSON text of the group. `rules`: their number. */
type MeasuredGroup = { readonly id: string; readonly text: Uint8Array; readonly rules: number };

type Json = Readonly<Record<string, unknown>>;
type Counts = { -readonly [Name in keyof ItemCounts]: number };

export function measuredParts({ form, mode, defaultPolicy, groups }: PolicyParts): MeasuredPolicy {
  return {
    form,
    mode,
    defaultPolicy,
    groups: inEvaluationOrder(groups).map(({ group, text = new Uint8Array() }) => ({
      id: group.id,
      text,
      rules: group.rules.length,
    })),
  };
}

/**
 * Divides the JSON text of a stored policy into its groups, without validating it. Returns null if the text
 * is not JSON.
 */
export function measuredText(body: Uint8Array, form: Form, recordMode: EnvelopeMode): MeasuredPolicy | null {
  const json = parseStrictJson(body, form === 'envelope' ? ['policy', 'source_groups'] : ['source_groups']);
  if (!json.ok) return null;
  const document = json.value as Json;
  const policy = form === 'envelope' ? (document.policy as Json) : document;
  const spans = json.list?.items ?? [];
  const groups = itemsIn(policy, 'source_groups').map((group, place) => ({
    id: String(group.id),
    text: body.subarray(spans[place]?.start ?? 0, spans[place]?.end ?? 0),
    rules: itemsIn(group, 'rules').length,
    order: typeof group.priority === 'number' ? group.priority : place,
  }));
  return {
    form,
    mode: form === 'envelope' ? (document.mode as EnvelopeMode) : recordMode,
    defaultPolicy: policy.default_policy as ActionWord | undefined,
    groups: groups.sort((one, other) => one.order - other.order),
  };
}

/**
 * Compares two revisions of a policy, see `ChangeSize`. `before` is null for the first revision: all its
 * groups and rules are added.
 */
export function changeSize(before: MeasuredPolicy | null, after: MeasuredPolicy): ChangeSize {
  const groups = noCounts();
  const rules = noCounts();
  const known = new Map(before?.groups.map((group) => [group.id, group]));
  let isReordered = before !== null && !isSameOrder(before.groups, after.groups);
  for (const group of after.groups) {
    const former = known.get(group.id);
    if (former === undefined) {
      groups.added++;
      rules.added += group.rules;
      continue;
    }
    known.delete(group.id);
    if (isSameText(former.text, group.text)) continue;
    const compared = compareGroups(former, group);
    if (compared === null) continue;
    groups.changed++;
    rules.added += compared.rules.added;
    rules.changed += compared.rules.changed;
    rules.removed += compared.rules.removed;
    isReordered ||= compared.isReordered;
  }
  for (const group of known.values()) {
    groups.removed++;
    rules.removed += group.rules;
  }
  return { groups, rules, other: isReordered || (before !== null && hasOtherSettings(before, after)) };
}

function hasOtherSettings(before: MeasuredPolicy, after: MeasuredPolicy): boolean {
  const actionOf = ({ defaultPolicy }: MeasuredPolicy) => defaultPolicy?.toLowerCase();
  return before.form !== after.form || before.mode !== after.mode || actionOf(before) !== actionOf(after);
}

/** Compares two texts of a group. Returns null if they are the same JSON value. */
function compareGroups(before: MeasuredGroup, after: MeasuredGroup) {
  const [was, is] = [parsed(before), parsed(after)];
  const [{ rules: _, ...old }, { rules: __, ...now }] = [was, is];
  const [oldRules, newRules] = [itemsIn(was, 'rules'), itemsIn(is, 'rules')];
  const rules = noCounts();
  const known = new Map(oldRules.map((rule) => [String(rule.id), rule]));
  const isReordered = !isSameOrder(named(oldRules), named(newRules));
  for (const rule of newRules) {
    const id = String(rule.id);
    const former = known.get(id);
    if (former === undefined) rules.added++;
    else if (!isSameJson(former, rule)) rules.changed++;
    known.delete(id);
  }
  rules.removed = known.size;
  const isSame = rules.added + rules.changed + rules.removed === 0 && !isReordered && isSameJson(old, now);
  return isSame ? null : { rules, isReordered };
}

const named = (items: readonly Json[]) => items.map(({ id }) => ({ id: String(id) }));

/** Whether the items that both lists contain have the same order in both. */
function isSameOrder(before: readonly { readonly id: string }[], after: readonly { readonly id: string }[]): boolean {
  if (before.length === after.length && before.every(({ id }, at) => id === after[at]?.id)) return true;
  const [old, now] = [new Set(before.map(({ id }) => id)), new Set(after.map(({ id }) => id))];
  const kept = [...now].filter((id) => old.has(id));
  let at = 0;
  for (const id of old) if (now.has(id) && kept[at++] !== id) return false;
  return true;
}

function isSameText(one: Uint8Array, other: Uint8Array): boolean {
  if (one === other) return true;
  if (one.length !== other.length) return false;
  for (let at = 0; at < one.length; at++) if (one[at] !== other[at]) return false;
  return true;
}

function parsed({ text }: MeasuredGroup): Json {
  const json = parseStrictJson(text);
  return json.ok ? (json.value as Json) : {};
}

function itemsIn(value: Json | undefined, name: string): readonly Json[] {
  const items = value?.[name];
  return Array.isArray(items) ? (items as Json[]) : [];
}

const isSameJson = (one: unknown, other: unknown): boolean =>
  JSON.stringify(one) === JSON.stringify(other) || JSON.stringify(ordered(one)) === JSON.stringify(ordered(other));

/** Returns a JSON value with the members of each object in the order of their names. */
function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, member]) => [name, ordered(member)]),
  );
}

const noCounts = (): Counts => ({ added: 0, changed: 0, removed: 0 });
