import { formatAddress } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import type { ListedMembership, SharedAddress } from '#contracts/kubernetes/membership.js';
import type {
  KubernetesSource,
  LabelExpressionConfig,
  LabelSelectorConfig,
} from '#contracts/policy/policy-document.js';
import type { Group } from '#contracts/policy/policy-model.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import { WarningList } from './warning-list.js';

/**
 * Adds the warnings about a Kubernetes selector that do not depend on the objects that it selects. `allows`:
 * whether its group can allow a packet.
 */
export function lintSelector(source: KubernetesSource, allows: boolean, at: string, warnings: WarningList): void {
  const { pod_selector: pod, node_selector: node } = source;
  const namespaces = pod?.namespace_selector;
  for (const { pointer, key } of contradictionsOf(source)) {
    const message = `This selector can select nothing: no value of the label ${JSON.stringify(key)} meets all conditions.`;
    warnings.add(at + pointer, 'selector_contradicts', message);
  }
  if (
    pod !== undefined &&
    !isLimited(pod) &&
    !isLimited(namespaces) &&
    (pod.namespace ?? pod.service_account) === undefined
  ) {
    const message = 'This selector has no condition: it selects every pod of every namespace.';
    warnings.add(`${at}/pod_selector`, 'selector_matches_all', message);
  } else if (allows && pod !== undefined && pod.namespace === undefined && !isLimited(namespaces)) {
    const message =
      'This selector of a group that allows names no namespace: whoever may create pods in any namespace can give them these labels. Add namespace or namespace_selector.';
    warnings.add(`${at}/pod_selector`, 'selector_any_namespace', message);
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

/**
 * Returns the parts of a selector that cannot select any object, each with the key of a label whose
 * conditions contradict each other.
 */
function contradictionsOf({ pod_selector: pod, node_selector: node }: KubernetesSource) {
  return [
    { pointer: '/pod_selector', key: contradictionOf(pod) },
    { pointer: '/pod_selector/namespace_selector', key: contradictionOf(pod?.namespace_selector) },
    { pointer: '/node_selector', key: contradictionOf(node) },
  ].filter(({ key }) => key !== undefined);
}

/**
 * Returns the key of a label whose conditions contradict each other: neither a value nor the absence of the
 * label fulfils all of them.
 */
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

/**
 * Returns the warnings about selectors that depend on the addresses that they select now. `groups` must be in
 * the order of the document. Pointers are relative to the PolicyConfig.
 */
export function lintMembers(
  groups: readonly Group[],
  { scope: resolution, list, shared = [] }: ListedMembership,
): Warning[] {
  const warnings = new WarningList();
  const selected = selectedKeys(list);
  for (const { pointer, selectors } of groups) {
    for (const [place, { key, source }] of selectors.entries()) {
      const at = `${pointer}/sources/kubernetes/${place}`;
      if (!resolution.resolved.has(key)) warnings.add(at, 'selector_unresolved', UNRESOLVED);
      else if (!selected.has(key) && !resolution.networks.has(key) && contradictionsOf(source).length === 0)
        warnings.add(at, 'selector_matches_nothing', 'This selector selects no address now.');
      const own = shared.filter(({ integrations }) => integrations.includes(source.integration));
      if (own.length > 0) warnings.add(at, 'address_shared', sharedText(own));
    }
  }
  return warnings.all();
}

const UNRESOLVED =
  'This selector was never resolved. Until it is, the denies of the group match every source, and its allows match only the static sources.';

function sharedText(shared: readonly SharedAddress[]): string {
  const texts = shared.map(({ address, integrations }) => `${formatAddress(address)} (${integrations.join(', ')})`);
  return `Different objects of several integrations have the same address, such as ${texts.join(', ')}: no allow rule by a selector matches it, and every deny rule by a selector does.`;
}

function selectedKeys({ added, sets }: ListedMembership['list']): ReadonlySet<string> {
  const occurring = new Set<number>();
  for (let at = 0; at < sets.length; at++) occurring.add(u32At(sets, at));
  return new Set(added.filter(({ number }) => occurring.has(number)).flatMap(({ keys }) => keys));
}
