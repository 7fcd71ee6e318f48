import type { z } from 'zod';
import type {
  PolicyConfig,
  PolicyEnvelope,
  RuleConfig,
  SourceGroupConfig,
  SourcesConfig,
} from '#contracts/policy/policy-document.js';
import type { Problem } from '#contracts/policy/policy-problem.js';
import { LIMITS } from '#policy/document/limits.js';
import {
  envelopeGroupSchema,
  envelopePolicySchema,
  envelopeSchema,
  groupSchema,
  policySchema,
} from '#policy/document/policy-schema.js';
import { type Intact, keepIntact, type ShapeProblem, shapeProblems } from '#policy/document/shape.js';
import type { Path } from '#policy/model/pointer.js';
import { validateKubernetesSource } from './kubernetes-validation.js';
import { validateMatch } from './match-validation.js';
import { isOverPolicy, TOO_MANY_INSTRUCTIONS } from './regex-validation.js';
import { ProblemList, type Validation, type ValidationContext } from './validation-context.js';
import { validateAction, validateAddresses, validateCidrs } from './value-validation.js';

/** Returns all problems (D15). A document without problems has the type `PolicyConfig`. */
export function validatePolicy(document: unknown, context: ValidationContext): Problem[] {
  const schema = context.form === 'envelope' ? envelopePolicySchema : policySchema;
  const validation = begin(schema, document, context, []);
  if (isObject(document)) validateConfig(document, '', validation);
  return validation.problems.all();
}

/** Returns all problems of a policy envelope in one pass, including problems of its name and mode. */
export function validateEnvelope(document: unknown, context: ValidationContext): Problem[] {
  const validation = begin(envelopeSchema, document, context, ['policy']);
  if (!isObject(document)) return validation.problems.all();
  const { name, policy } = document as Intact<PolicyEnvelope>;
  if (name !== undefined && !isValidName(name)) {
    validation.problems.add('/name', 'invalid_name', NAME_RULE);
  }
  if (policy !== undefined) validateConfig(policy, '/policy', validation);
  return validation.problems.all();
}

/**
 * Returns all problems of one source group in one pass, except problems that depend on the other groups of
 * the policy.
 */
export function validateSourceGroup(document: unknown, context: ValidationContext): Problem[] {
  const schema = context.form === 'envelope' ? envelopeGroupSchema : groupSchema;
  const problems = new ProblemList();
  const shape = shapeProblems(schema, document);
  for (const problem of shape) {
    const { path, code, message } = aboutMode(problem, 0);
    problems.addAt(path, code, message);
  }
  const validation = { problems, context, damaged: keepIntact(document, shape), expressions: { instructions: 0 } };
  if (!isObject(document)) return problems.all();
  const group = document as Intact<SourceGroupConfig>;
  validateId({ id: group.id, index: 0, ids: new Map(), list: '', at: '', what: 'source group' }, validation);
  validateGroup(group, '', validation);
  validateInstructions('/rules', validation);
  return problems.all();
}

/** Returns a policy name without surrounding white space. The store contains names only in this form. */
export function trimName(name: string): string {
  return name.trim();
}

export const NAME_RULE = `A name has 1 to ${LIMITS.nameLength} printable characters; white space around it is removed.`;

/**
 * Whether a name is valid for a policy (D5). Without surrounding white space, a valid name has 1 to
 * `LIMITS.nameLength` Unicode code points, and no control character.
 */
export function isValidName(name: string): boolean {
  const trimmed = trimName(name);
  const { length } = [...trimmed];
  return length > 0 && length <= LIMITS.nameLength && isPrintable(trimmed);
}

/** Whether a text has no control characters, no other invisible characters, and no line breaks. */
export function isPrintable(text: string): boolean {
  return !/[\p{C}\p{Zl}\p{Zp}]/u.test(text);
}

function begin(schema: z.ZodType, document: unknown, context: ValidationContext, policyPath: Path): Validation {
  const problems = new ProblemList();
  const shape = shapeProblems(schema, document);
  for (const problem of aboutRecord(shape, schema)) {
    const { path, code, message } = aboutMode(problem, policyPath.length + 2);
    problems.addAt(path, code, message);
  }
  return { problems, context, damaged: keepIntact(document, shape), expressions: { instructions: 0 } };
}

/** The JSON members of a policy record that appear in responses but not in request bodies. */
const RECORD_MEMBERS = new Set([
  'id',
  'form',
  'revision',
  'created_at',
  'updated_at',
  'updated_by',
  'active',
  'warnings',
  'dry_run',
  'program_lines',
  'diff',
]);

/**
 * Combines all unknown members that only responses contain into one problem. A request has such members if a
 * client sends a response back as a request.
 */
function aboutRecord(shape: readonly ShapeProblem[], schema: z.ZodType): readonly ShapeProblem[] {
  if (schema !== envelopeSchema) return shape;
  const isOfRecord = ({ path, code }: ShapeProblem) =>
    code === 'unknown_field' && path.length === 1 && RECORD_MEMBERS.has(String(path[0]));
  const [first, ...others] = shape.filter(isOfRecord);
  if (first === undefined) return shape;
  const names = [first, ...others].map(({ path }) => String(path[0])).join(', ');
  const message = `Only responses contain ${names}: send only mode, name and policy.`;
  return [{ ...first, message }, ...shape.filter((problem) => !isOfRecord(problem))];
}

/**
 * Replaces the message of a problem with the mode of a source group by a clearer message. A source group has
 * a required `mode` in the singleton form (without name and mode), and no `mode` in the envelope form.
 * `depth` is the number of path steps to a group.
 */
function aboutMode(problem: ShapeProblem, depth: number): ShapeProblem {
  const { path, code } = problem;
  if (path.length !== depth + 1 || path[depth] !== 'mode') return problem;
  if (depth > 0 && path[depth - 2] !== 'source_groups') return problem;
  if (code === 'required') {
    return { path, code: 'mode_required', message: 'In the singleton form a source group needs a mode.' };
  }
  if (code !== 'unknown_field') return problem;
  const message = 'In the envelope form a source group has no mode; the mode of the envelope applies.';
  return { path, code: 'mode_not_allowed', message };
}

function validateConfig(config: Intact<PolicyConfig>, at: string, validation: Validation): void {
  validateAction(config.default_policy, `${at}/default_policy`, validation);
  const groups = config.source_groups ?? [];
  const { problems } = validation;
  if (groups.length > LIMITS.groups) {
    problems.add(`${at}/source_groups`, 'too_many', `A policy has at most ${LIMITS.groups} source groups.`);
  }
  validateEach(groups, `${at}/source_groups`, 'source group', validation, validateGroup);
  const rules = groups.reduce((sum, group) => sum + (group?.rules?.length ?? 0), 0);
  if (rules > LIMITS.rules) {
    const message = `A policy has at most ${LIMITS.rules} rules; this policy has ${rules}.`;
    problems.add(`${at}/source_groups`, 'too_many', message);
  }
  validateInstructions(`${at}/source_groups`, validation);
}

function validateInstructions(at: string, { problems, context, expressions }: Validation): void {
  if (!isOverPolicy(expressions.instructions) || context.isStored === true) return;
  problems.add(at, 'too_many', TOO_MANY_INSTRUCTIONS);
}

function validateGroup(group: Intact<SourceGroupConfig>, at: string, validation: Validation): void {
  if (group.sources !== undefined) validateSources(group.sources, `${at}/sources`, validation);
  validateAction(group.default_action, `${at}/default_action`, validation);
  validateEach(group.rules ?? [], `${at}/rules`, 'rule of this group', validation, validateRule);
}

/** Validates each item of a list, and that no two items have the same id. */
function validateEach<Item extends { readonly id?: string | undefined }>(
  items: readonly (Item | undefined)[],
  list: string,
  what: string,
  validation: Validation,
  validateItem: (item: Item, at: string, validation: Validation) => void,
): void {
  const ids = new Map<string, number>();
  for (const [index, item] of items.entries()) {
    if (item === undefined) continue;
    const at = `${list}/${index}`;
    validateId({ id: item.id, index, ids, list, at, what }, validation);
    validateItem(item, at, validation);
  }
}

function validateRule(rule: Intact<RuleConfig>, at: string, validation: Validation): void {
  validateAction(rule.action, `${at}/action`, validation);
  if (rule.match !== undefined) validateMatch(rule.match, `${at}/match`, validation);
}

function validateSources(sources: Intact<SourcesConfig>, at: string, validation: Validation): void {
  const { cidrs = [], ips = [], kubernetes = [] } = sources;
  if (cidrs.length + ips.length + kubernetes.length === 0 && !validation.damaged.has(sources)) {
    const message = 'A source group needs a source: cidrs, ips or kubernetes.';
    validation.problems.add(at, 'empty_sources', message);
  }
  validateCidrs(cidrs, `${at}/cidrs`, validation);
  validateAddresses(ips, `${at}/ips`, validation);
  for (const [index, source] of kubernetes.entries()) {
    if (source !== undefined) validateKubernetesSource(source, `${at}/kubernetes/${index}`, validation);
  }
}

/**
 * The id of a list element, and its position. `ids` maps the ids of earlier elements to their indexes.
 * `list` and `at` are the JSON pointers of the list and the element. `what` is the noun for an element in
 * messages.
 */
type ListedId = {
  readonly id: string | undefined;
  readonly index: number;
  readonly ids: Map<string, number>;
  readonly list: string;
  readonly at: string;
  readonly what: string;
};

function validateId({ id, index, ids, list, at, what }: ListedId, { problems, context }: Validation): void {
  if (id === undefined) return;
  if (id === '') {
    problems.add(`${at}/id`, 'empty_id', 'An id is not empty.');
    return;
  }
  if (!isPrintable(id) && context.isStored !== true) {
    problems.add(`${at}/id`, 'invalid_id', 'An id has printable characters only.');
  }
  const first = ids.get(id);
  if (first === undefined) ids.set(id, index);
  else problems.add(`${at}/id`, 'duplicate_id', `Another ${what} has this id: ${list}/${first}.`);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
