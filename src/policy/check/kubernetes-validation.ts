import type { KubernetesSource } from '#contracts/policy-document.js';
import type { Intact } from '#policy/document/intact.js';
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
  validateLabels(pod?.match_labels, `${at}/pod_selector/match_labels`, validation);
  validateLabels(node?.match_labels, `${at}/node_selector/match_labels`, validation);
}

export function unknownIntegration(name: string): string {
  return `There is no integration named ${JSON.stringify(name)}.`;
}

function validateLabels(labels: Labels | undefined, at: string, { problems }: Validation): void {
  if (labels === undefined) return;
  for (const [key, value] of Object.entries(labels)) {
    const pointer = `${at}/${escapeStep(key)}`;
    if (!isLabelKey(key)) {
      const message =
        'A label key is a name of at most 63 letters, digits, "-", "_" and ".", after an optional "domain/".';
      problems.add(pointer, 'invalid_label', message);
    }
    // Check the type here: the Zod schema ignores the key `__proto__`, so the value of this key may have any
    // type.
    if (value !== undefined && (typeof value !== 'string' || !isLabelValue(value))) {
      const message = 'A label value has at most 63 letters, digits, "-", "_" and ".", a letter or digit at both ends.';
      problems.add(pointer, 'invalid_label', message);
    }
  }
}

const DNS_LABEL = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const DNS_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

function isLabelKey(key: string): boolean {
  const slash = key.indexOf('/');
  const domain = key.slice(0, Math.max(slash, 0));
  if (slash !== -1 && !(domain.length <= 253 && DNS_NAME.test(domain))) return false;
  return isLabelName(key.slice(slash + 1));
}

function isLabelName(name: string): boolean {
  return name.length <= 63 && LABEL_NAME.test(name);
}

function isLabelValue(value: string): boolean {
  return value === '' || isLabelName(value);
}
