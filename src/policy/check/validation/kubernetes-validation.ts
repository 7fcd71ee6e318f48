import type {
  KubernetesSource,
  LabelExpressionConfig,
  LabelSelectorConfig,
} from '#contracts/policy/policy-document.js';
import type { Intact } from '#policy/document/shape.js';
import { escapeStep } from '#policy/model/pointer.js';
import type { Validation } from './validation-context.js';

type Labels = Readonly<Record<string, string | undefined>>;

export function validateKubernetesSource(source: Intact<KubernetesSource>, at: string, validation: Validation): void {
  const { problems, context, damaged } = validation;
  const { integration, pod_selector: pod, node_selector: node } = source;
  if (integration !== undefined && context.integrations !== undefined && !context.integrations.has(integration)) {
    problems.add(`${at}/integration`, 'unknown_integration', unknownIntegration(integration));
  } else if (integration === '') {
    problems.add(`${at}/integration`, 'unknown_integration', 'The name of an integration is not empty.');
  }
  if ((pod === undefined) === (node === undefined) && !damaged.has(source)) {
    const message = 'A Kubernetes source sets exactly one of pod_selector and node_selector.';
    problems.add(at, 'selector_count', message);
  }
  if (pod?.namespace !== undefined && !(pod.namespace.length <= 63 && DNS_LABEL.test(pod.namespace))) {
    const message = 'A namespace is 1 to 63 lower-case letters, digits and "-".';
    problems.add(`${at}/pod_selector/namespace`, 'invalid_label', message);
  }
  if (pod?.service_account !== undefined && !isDnsName(pod.service_account)) {
    const message = 'A service account is 1 to 253 lower-case letters, digits, "-" and ".".';
    problems.add(`${at}/pod_selector/service_account`, 'invalid_label', message);
  }
  if (node?.addresses?.length === 0) {
    const message = 'An empty list selects no address.';
    problems.add(`${at}/node_selector/addresses`, 'empty_matcher', message);
  }
  validateLabelSelector(pod, `${at}/pod_selector`, validation);
  validateLabelSelector(pod?.namespace_selector, `${at}/pod_selector/namespace_selector`, validation);
  validateLabelSelector(node, `${at}/node_selector`, validation);
}

export function unknownIntegration(name: string): string {
  return `There is no integration named ${JSON.stringify(name)}.`;
}

function validateLabelSelector(
  selector: Intact<LabelSelectorConfig> | undefined,
  at: string,
  validation: Validation,
): void {
  validateLabels(selector?.match_labels, `${at}/match_labels`, validation);
  for (const [index, expression] of (selector?.match_expressions ?? []).entries()) {
    if (expression !== undefined) validateExpression(expression, `${at}/match_expressions/${index}`, validation);
  }
}

function validateExpression(expression: Intact<LabelExpressionConfig>, at: string, validation: Validation): void {
  const { key, operator, values } = expression;
  const { problems, damaged } = validation;
  if (key !== undefined && !isLabelKey(key)) problems.add(`${at}/key`, 'invalid_label', KEY_RULE);
  for (const [index, value] of (values ?? []).entries()) {
    if (value !== undefined && !isLabelValue(value)) problems.add(`${at}/values/${index}`, 'invalid_label', VALUE_RULE);
  }
  if (operator === undefined || damaged.has(expression)) return;
  const needsValues = operator === 'In' || operator === 'NotIn';
  if (needsValues && (values === undefined || values.length === 0)) {
    problems.add(`${at}/values`, 'expression_values', `The operator ${operator} needs at least one value.`);
  } else if (!needsValues && values !== undefined && values.length > 0) {
    problems.add(`${at}/values`, 'expression_values', `The operator ${operator} takes no values.`);
  }
}

function validateLabels(labels: Labels | undefined, at: string, { problems }: Validation): void {
  if (labels === undefined) return;
  for (const [key, value] of Object.entries(labels)) {
    const pointer = `${at}/${escapeStep(key)}`;
    if (!isLabelKey(key)) problems.add(pointer, 'invalid_label', KEY_RULE);
    // Check the type here: the Zod schema ignores the key `__proto__`, so the value of this key may have any
    // type.
    if (value !== undefined && (typeof value !== 'string' || !isLabelValue(value))) {
      problems.add(pointer, 'invalid_label', VALUE_RULE);
    }
  }
}

const KEY_RULE = 'A label key is a name of at most 63 letters, digits, "-", "_" and ".", after an optional "domain/".';
const VALUE_RULE = 'A label value has at most 63 letters, digits, "-", "_" and ".", a letter or digit at both ends.';
const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const DNS_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

function isLabelKey(key: string): boolean {
  const slash = key.indexOf('/');
  const domain = key.slice(0, Math.max(slash, 0));
  if (slash !== -1 && !isDnsName(domain)) return false;
  return isLabelName(key.slice(slash + 1));
}

function isDnsName(text: string): boolean {
  return text.length <= 253 && DNS_NAME.test(text);
}

function isLabelName(name: string): boolean {
  return name.length <= 63 && LABEL_NAME.test(name);
}

function isLabelValue(value: string): boolean {
  return value === '' || isLabelName(value);
}
