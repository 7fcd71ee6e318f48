import type { KubernetesSource, LabelExpressionConfig, LabelSelectorConfig } from '#contracts/policy-document.js';
import { selectorOf } from '#policy/model/selector.js';
import type { WarningList } from './warning-list.js';

/**
 * Adds the warnings about a Kubernetes selector. `selected` returns the number of addresses that a selector
 * selects now, and undefined if the selector was never resolved.
 */
export function lintSelector(
  source: KubernetesSource,
  at: string,
  selected: ((key: string) => number | undefined) | undefined,
  warnings: WarningList,
): void {
  const { pod_selector: pod, node_selector: node } = source;
  const count = selected?.(selectorOf(source).key);
  if (count === undefined) {
    const message =
      'This selector was never resolved. Until it is, the denies of the group match every source, and its allows match only the static sources.';
    warnings.add(at, 'selector_unresolved', message);
  }
  const namespaces = pod?.namespace_selector;
  const contradictions = [
    { pointer: `${at}/pod_selector`, key: contradictionOf(pod) },
    { pointer: `${at}/pod_selector/namespace_selector`, key: contradictionOf(namespaces) },
    { pointer: `${at}/node_selector`, key: contradictionOf(node) },
  ].filter(({ key }) => key !== undefined);
  for (const { pointer, key } of contradictions) {
    const message = `This selector can select nothing: no value of the label ${JSON.stringify(key)} meets all conditions.`;
    warnings.add(pointer, 'selector_contradicts', message);
  }
  if (count === 0 && contradictions.length === 0) {
    warnings.add(at, 'selector_matches_nothing', 'This selector selects no address now.');
  }
  if (
    pod !== undefined &&
    !isLimited(pod) &&
    !isLimited(namespaces) &&
    (pod.namespace ?? pod.service_account) === undefined
  ) {
    const message = 'This selector has no condition: it selects every pod of every namespace.';
    warnings.add(`${at}/pod_selector`, 'selector_matches_all', message);
  }
  if (node !== undefined && !isLimited(node)) {
    const message = 'This selector has no condition: it selects every node.';
    warnings.add(`${at}/node_selector`, 'selector_matches_all', message);
  }
}

function isLimited({
  match_labels: labels = {},
  match_expressions: expressions = [],
}: LabelSelectorConfig = {}): boolean {
  return Object.keys(labels).length + expressions.length > 0;
}

/** Returns the key of a label for which no value, and not its absence, meets all conditions. */
function contradictionOf(selector: LabelSelectorConfig = {}): string | undefined {
  const { match_labels: labels = {}, match_expressions: expressions = [] } = selector;
  const equal = Object.entries(labels).map(([key, value]): LabelExpressionConfig => {
    return { key, operator: 'In', values: [value] };
  });
  const all = [...equal, ...expressions];
  return [...new Set(all.map(({ key }) => key))].find((key) => isContradictory(all.filter((of) => of.key === key)));
}

/** Whether conditions on one label exclude each other. */
function isContradictory(conditions: readonly LabelExpressionConfig[]): boolean {
  const has = (operator: LabelExpressionConfig['operator']) => conditions.filter((of) => of.operator === operator);
  const lists = has('In').map(({ values = [] }) => values);
  const [first, ...others] = lists;
  if (has('DoesNotExist').length > 0) return first !== undefined || has('Exists').length > 0;
  const excluded = new Set(has('NotIn').flatMap(({ values = [] }) => values));
  return first?.every((value) => excluded.has(value) || others.some((list) => !list.includes(value))) === true;
}
