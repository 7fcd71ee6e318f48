import type { SourceGroupConfig } from '#contracts/policy/policy-document.js';
import type { Action, Policy } from '#contracts/policy/policy-model.js';
import type { InvalidDocument, Warning } from '#contracts/policy/policy-problem.js';
import type { TextEdit } from '#contracts/policy/policy-record.js';
import type { ContainingGroups } from '#policy/check/shadow/containing-groups.js';
import { unknownIntegration } from '#policy/check/validation/kubernetes-validation.js';
import { isOverPolicy, TOO_MANY_INSTRUCTIONS } from '#policy/check/validation/regex-validation.js';
import { validateSourceGroup } from '#policy/check/validation/validate.js';
import { ProblemList, type ValidationContext } from '#policy/check/validation/validation-context.js';
import type { LintContext } from '#policy/check/warnings/group-lint.js';
import { lint } from '#policy/check/warnings/lint.js';
import { parseStrictJson } from '#policy/document/json.js';
import { LIMITS } from '#policy/document/limits.js';
import { appendGroup, type Outline, type OutlineEdit, removeGroup, replaceGroup } from '#policy/document/outline.js';
import { type GroupPart, groupPart, type PolicyParts, policyOf, renumbered } from './policy-parts.js';

/**
 * A policy in memory, with the positions of its groups in the JSON text. So a write of one group parses and
 * edits only this group.
 */
export type ParsedPolicy = { readonly parts: PolicyParts; readonly outline: Outline };

export type GroupWriteContext = Omit<ValidationContext, 'form'> &
  LintContext & { readonly fallback: Action; readonly containingGroups?: ContainingGroups };

export type GroupWrite =
  | {
      readonly ok: true;
      readonly created: boolean;
      readonly parsed: ParsedPolicy;
      readonly edit: TextEdit;
      /** The JSON text of the written group; null if the group was removed. */
      readonly groupJson: Uint8Array | null;
      readonly policy: Policy;
      /**
       * The warnings about the written group come first; their JSON pointers are relative to the group. The
       * pointers of all other warnings are relative to the policy record in an API response.
       */
      readonly warnings: readonly Warning[];
    }
  | InvalidDocument;

/**
 * Replaces the group with the id `id`, or appends a new group. The resulting policy is equal to the result of
 * a write of the whole edited document. Problems of the written group have pointers relative to `body`.
 * Problems of other groups have pointers relative to the policy record.
 */
export function putGroup(parsed: ParsedPolicy, id: string, body: Uint8Array, context: GroupWriteContext): GroupWrite {
  const { parts, outline } = parsed;
  const json = parseStrictJson(body);
  if (!json.ok) return { ok: false, code: 'invalid_body', problems: json.problems };
  const named = withId(json.value, body, id);
  const index = indexOf(parts, id);
  const problems = new ProblemList();
  for (const { pointer, code, message } of validateSourceGroup(named.value, { ...context, form: parts.form })) {
    problems.add(pointer, code, message);
  }
  if (named.id !== undefined && named.id !== id) {
    problems.add('/id', 'id_mismatch', `The path names the group ${JSON.stringify(id)}.`);
  }
  const others = index === undefined ? parts.groups : parts.groups.toSpliced(index, 1);
  checkTotals(others, named.value, problems);
  checkIntegrations(others, context, problems);
  if (problems.all().length > 0) return { ok: false, code: 'invalid_policy', problems: problems.all() };

  const place = index ?? parts.groups.length;
  const { form, mode } = parts;
  // Copy the text: the caller of `putGroup` may transfer `named.text` to another thread, which detaches the
  // buffer of `named.text`.
  const part = groupPart(named.value as SourceGroupConfig, place, new Uint8Array(named.text), { form, mode, context });
  if (isOverPolicy(others.reduce((sum, { instructions }) => sum + instructions, part.instructions))) {
    problems.add('/rules', 'too_many', TOO_MANY_INSTRUCTIONS);
    return { ok: false, code: 'invalid_policy', problems: problems.all() };
  }
  const groups = index === undefined ? [...parts.groups, part] : parts.groups.with(index, part);
  const change = index === undefined ? appendGroup(outline, named.text) : replaceGroup(outline, index, named.text);
  return written({ ...parts, groups }, change, context, part, { created: index === undefined, groupJson: named.text });
}

/** Removes the group with the id `id`. Returns null if the policy has no such group. */
export function deleteGroup(
  { parts, outline }: ParsedPolicy,
  id: string,
  context: GroupWriteContext,
): GroupWrite | null {
  const index = indexOf(parts, id);
  if (index === undefined) return null;
  const groups = renumbered(parts.groups.toSpliced(index, 1));
  const problems = new ProblemList();
  checkIntegrations(groups, context, problems);
  if (problems.all().length > 0) return { ok: false, code: 'invalid_policy', problems: problems.all() };
  const change = removeGroup(outline, index);
  return written({ ...parts, groups }, change, context, undefined, { created: false, groupJson: null });
}

function written(
  parts: PolicyParts,
  { edit, outline }: OutlineEdit,
  { fallback, containingGroups, ipv6 }: GroupWriteContext,
  part: GroupPart | undefined,
  answer: { readonly created: boolean; readonly groupJson: Uint8Array | null },
): GroupWrite {
  const policy = policyOf(parts, fallback);
  const own = part?.group.pointer;
  const warnings = lint(parts.groups, policy, { first: own, containingGroups, ipv6 }).map((warning) => ({
    ...warning,
    pointer: isWithin(warning.pointer, own)
      ? warning.pointer.slice(own.length)
      : warning.pointer === ''
        ? ''
        : `/policy${warning.pointer}`,
  }));
  return { ok: true, ...answer, parsed: { parts, outline }, edit, policy, warnings };
}

function isWithin(pointer: string, base: string | undefined): base is string {
  return base !== undefined && `${pointer}/`.startsWith(`${base}/`);
}

function indexOf({ groups }: PolicyParts, id: string): number | undefined {
  const index = groups.findIndex(({ group }) => group.id === id);
  return index === -1 ? undefined : index;
}

type Named = { readonly value: unknown; readonly text: Uint8Array; readonly id: unknown };

/** Returns the group in a request body. If the body has no id, inserts the id from the request path. */
function withId(value: unknown, body: Uint8Array, id: string): Named {
  const text = trimmed(body);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { value, text, id: undefined };
  if (Object.hasOwn(value, 'id')) return { value, text, id: (value as { readonly id: unknown }).id };
  const separator = Object.keys(value).length > 0 ? ',' : '';
  const head = new TextEncoder().encode(`{"id":${JSON.stringify(id)}${separator}`);
  const whole = new Uint8Array(head.length + text.length - 1);
  whole.set(head);
  whole.set(text.subarray(1), head.length);
  return { value: { id, ...value }, text: whole, id };
}

function trimmed(text: Uint8Array): Uint8Array {
  const isSpace = (byte: number | undefined) => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
  let from = 0;
  let to = text.length;
  while (isSpace(text[from])) from++;
  while (isSpace(text[to - 1])) to--;
  return text.slice(from, to);
}

function checkTotals(others: readonly GroupPart[], value: unknown, problems: ProblemList): void {
  if (others.length >= LIMITS.groups) {
    problems.add('', 'too_many', `A policy has at most ${LIMITS.groups} source groups.`);
  }
  const own = (value as { readonly rules?: unknown } | null)?.rules;
  const rules = others.reduce((sum, { group }) => sum + group.rules.length, Array.isArray(own) ? own.length : 0);
  if (rules > LIMITS.rules) {
    const message = `A policy has at most ${LIMITS.rules} rules; with this group it would have ${rules}.`;
    problems.add('/rules', 'too_many', message);
  }
}

/**
 * Checks that the integrations of all other groups still exist. A client may have deleted an integration (a
 * Kubernetes API server) after it wrote one of these groups.
 */
function checkIntegrations(
  others: readonly GroupPart[],
  { integrations: known }: GroupWriteContext,
  problems: ProblemList,
): void {
  if (known === undefined) return;
  for (const { group, integrations } of others) {
    for (const [place, name] of integrations.entries()) {
      if (known.has(name)) continue;
      const pointer = `/policy${group.pointer}/sources/kubernetes/${place}/integration`;
      problems.add(pointer, 'unknown_integration', unknownIntegration(name));
    }
  }
}
