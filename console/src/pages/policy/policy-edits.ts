import { type Document, isMap, isSeq, parseDocument, type YAMLMap } from 'yaml';
import type { Schemas } from '../../api/client.js';
import type { LazyText } from '../../charts/draft.chart.js';
import type { Steps } from '../../slices.js';
import { foldShort, isJson, jsonText, policyIn, yamlText } from './policy-text.js';

/**
 * An edit that inserts a rule before another rule, or at the end of its group. If `group` is null, the rule
 * gets a new group with these sources, before the group `before` or at the end of the policy.
 */
type InsertRule = {
  readonly edit: 'insert_rule';
  readonly source_group: string | null;
  readonly before: string | null;
  readonly rule: Readonly<Record<string, unknown>>;
  readonly sources?: readonly string[];
};
/**
 * Sets the mode of a policy document (envelope). A document without a mode of its own (singleton form) gets
 * the mode in each source group.
 */
type SetMode = { readonly edit: 'set_mode'; readonly mode: Schemas['EnvelopeMode'] };
export type PolicyEdit = Schemas['LintEdit'] | InsertRule | SetMode;

/**
 * Thrown if an edit cannot be applied to the text, for example because it names a rule that the text lacks.
 */
export class EditFailure extends Error {
  override readonly name = 'EditFailure';
}

/** Applies edits to a text. Comments stay, except those of removed rules. Throws `EditFailure`. */
export function* editText(before: LazyText, edits: readonly PolicyEdit[]): Steps<string> {
  const text = before.toString();
  yield;
  if (isJson(text)) {
    let root: Plain;
    try {
      root = JSON.parse(text) as Plain;
    } catch {
      throw new EditFailure('The text has syntax errors. Correct them first.');
    }
    yield;
    for (const edit of edits) applyEdit(plainTree(root), edit);
    const edited = yield* jsonText(root, '');
    yield;
    return `${edited}\n`;
  }
  const document: Document = parseDocument(text, { stringKeys: true });
  if (document.errors.length > 0) throw new EditFailure('The text has syntax errors. Correct them first.');
  if (document.contents === null) document.contents = document.createNode({});
  for (const edit of edits) applyEdit(yamlTree(document), edit);
  return yamlText(document);
}

type Plain = Record<string, unknown>;
type Item = unknown;

/** The operations that edits need, implemented for YAML documents and for plain JSON. */
type Tree = {
  readonly root: Item;
  readonly policy: Item;
  readonly get: (item: Item, key: string) => unknown;
  readonly set: (item: Item, key: string, value: unknown) => void;
  /** Returns the items of a list in a map. Adds the list if the map does not have it. */
  readonly list: (item: Item, key: string) => Item[];
  readonly made: (value: unknown) => Item;
};

function plainTree(root: Plain): Tree {
  return {
    root,
    policy: policyIn(root),
    get: (item, key) => (item as Plain)[key],
    set: (item, key, value) => {
      (item as Plain)[key] = value;
    },
    list: (item, key) => {
      const map = item as Plain;
      map[key] ??= [];
      return map[key] as Item[];
    },
    made: (value) => value,
  };
}

function yamlTree(document: Document): Tree {
  const root = document.contents;
  const made = (value: unknown, key: string) => {
    const node = document.createNode(value);
    foldShort(node, key);
    return node;
  };
  if (!isMap(root)) throw new EditFailure('The text is not a policy.');
  const policy = root.has('policy') ? root.get('policy', true) : root;
  return {
    root,
    policy,
    get: (item, key) => (isMap(item) ? item.get(key) : undefined),
    set: (item, key, value) => {
      (item as YAMLMap).set(key, made(value, key));
    },
    list: (item, key) => {
      const map = item as YAMLMap;
      if (!isSeq(map.get(key))) map.set(key, document.createNode([]));
      const list = map.get(key);
      if (!isSeq(list)) return [];
      // Write a list that was empty (`[]`) on several lines; otherwise its new items would be on the same
      // line.
      if (list.items.length === 0) list.flow = false;
      return list.items;
    },
    made: (value) => made(value, ''),
  };
}

function applyEdit(tree: Tree, edit: PolicyEdit): void {
  const { root, policy, get, set, list, made } = tree;
  const idOf = (item: Item) => get(item, 'id');
  const groups = () => list(policy, 'source_groups');
  const groupOf = (id: string) => {
    const group = groups().find((item) => idOf(item) === id);
    if (group === undefined) throw new EditFailure(`The text has no source group ${id}.`);
    return group;
  };
  const indexIn = (rules: Item[], group: string, id: string) => {
    const at = rules.findIndex((item) => idOf(item) === id);
    if (at === -1) throw new EditFailure(`The source group ${group} of the text has no rule ${id}.`);
    return at;
  };
  const remove = (group: string, id: string) => {
    const rules = list(groupOf(group), 'rules');
    return rules.splice(indexIn(rules, group, id), 1)[0];
  };
  switch (edit.edit) {
    case 'remove_group':
      groups().splice(groups().indexOf(groupOf(edit.source_group)), 1);
      return;
    case 'remove_rule':
      remove(edit.source_group, edit.rule);
      return;
    case 'replace_rule': {
      const rules = list(groupOf(edit.source_group), 'rules');
      const match = get(rules[indexIn(rules, edit.source_group, edit.rule)], 'match');
      for (const [key, value] of Object.entries(edit.match)) set(match, key, value);
      for (const id of edit.remove) remove(edit.source_group, id);
      return;
    }
    case 'move_rule': {
      const moved = remove(edit.source_group, edit.rule);
      const rules = list(groupOf(edit.source_group), 'rules');
      rules.splice(indexIn(rules, edit.source_group, edit.before), 0, moved);
      return;
    }
    case 'insert_rule': {
      if (edit.source_group === null) {
        const mode = get(root, 'policy') === undefined ? { mode: 'enforce' } : {};
        const id = freeId(groups().map(idOf), 'new-group');
        const all = groups();
        const at = edit.before === null ? all.length : all.indexOf(groupOf(edit.before));
        all.splice(at, 0, made({ id, ...mode, sources: { cidrs: edit.sources ?? [] }, rules: [edit.rule] }));
        return;
      }
      const rules = list(groupOf(edit.source_group), 'rules');
      const rule = { ...edit.rule, id: freeId(rules.map(idOf), String(edit.rule.id)) };
      rules.splice(edit.before === null ? rules.length : indexIn(rules, edit.source_group, edit.before), 0, made(rule));
      return;
    }
    case 'set_mode':
      if (get(root, 'policy') !== undefined) set(root, 'mode', edit.mode);
      else for (const group of groups()) set(group, 'mode', edit.mode);
  }
}

function freeId(taken: readonly unknown[], wanted: string): string {
  let id = wanted;
  for (let count = 2; taken.includes(id); count++) id = `${wanted}-${count}`;
  return id;
}
