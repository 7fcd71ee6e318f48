import { describe, expect, test } from 'vitest';
import { NO_SELECTORS, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type {
  KubernetesSource,
  LabelExpressionConfig,
  LabelSelectorConfig,
} from '#contracts/policy/policy-document.js';
import { partsOf, policyOf } from '#policy/check/policy-parts.js';
import { validatePolicy } from '#policy/check/validation/validate.js';
import { lint } from '#policy/check/warnings/lint.js';
import { lintMembers } from '#policy/check/warnings/selector-lint.js';
import { selectorOf } from '#policy/model/sources/selector.js';

const AT = '/source_groups/0/sources/kubernetes/0';

function documentOf(source: unknown, group: object = {}) {
  return { source_groups: [{ id: 'g', mode: 'enforce', sources: { kubernetes: [source] }, ...group }] };
}

function problemsOf(selector: object): string[] {
  const context = { form: 'singleton', integrations: new Set(['prod']), parseCertificate: () => undefined } as const;
  const problems = validatePolicy(structuredClone(documentOf({ integration: 'prod', ...selector })), context);
  return problems.map(({ pointer, code, message }) => `${code} ${pointer.replace(AT, '~')}: ${message}`);
}

/** Returns the warnings about a selector with the fields in `source`, in a group with those in `group`. */
function warningsOf(source: Omit<KubernetesSource, 'integration'>, group: object = {}) {
  const document = documentOf({ integration: 'prod', ...source }, group);
  const context = { dns: true, servicePlane: true };
  const parts = partsOf(document as Parameters<typeof partsOf>[0], { form: 'singleton', mode: 'enforce', context });
  const warnings = lint(parts.groups, policyOf(parts, 'deny')).filter(({ pointer }) => pointer.startsWith(AT));
  return warnings.map(({ pointer, code }) => `${code} ${pointer.replace(AT, '~')}`);
}

const VALUE = 'A label value has at most 63 letters, digits, "-", "_" and ".", a letter or digit at both ends.';
const KEY = 'A label key is a name of at most 63 letters, digits, "-", "_" and ".", after an optional "domain/".';
const pods = (...match_expressions: readonly object[]) => ({ pod_selector: { match_expressions } });

describe('validation of a Kubernetes selector', () => {
  test.each<[string, object, object, string[]]>([
    [
      'an unknown operator',
      pods({ key: 'app', operator: 'in', values: ['a'] }),
      pods({ key: 'app', operator: 'In', values: ['a'] }),
      [
        'invalid_value ~/pod_selector/match_expressions/0/operator: Must be "In" or "NotIn" or "Exists" or "DoesNotExist".',
      ],
    ],
    [
      'an expression without key and operator',
      pods({}),
      pods({ key: 'app', operator: 'Exists' }),
      [
        'required ~/pod_selector/match_expressions/0/key: This field is required.',
        'required ~/pod_selector/match_expressions/0/operator: This field is required.',
      ],
    ],
    [
      'In without values',
      pods({ key: 'app', operator: 'In' }, { key: 'app', operator: 'NotIn', values: [] }),
      pods({ key: 'app', operator: 'In', values: [''] }, { key: 'app', operator: 'NotIn', values: ['b'] }),
      [
        'expression_values ~/pod_selector/match_expressions/0/values: The operator In needs at least one value.',
        'expression_values ~/pod_selector/match_expressions/1/values: The operator NotIn needs at least one value.',
      ],
    ],
    [
      'Exists with values',
      pods({ key: 'app', operator: 'Exists', values: ['a'] }, { key: 'b', operator: 'DoesNotExist', values: ['a'] }),
      pods({ key: 'app', operator: 'Exists', values: [] }, { key: 'b', operator: 'DoesNotExist' }),
      [
        'expression_values ~/pod_selector/match_expressions/0/values: The operator Exists takes no values.',
        'expression_values ~/pod_selector/match_expressions/1/values: The operator DoesNotExist takes no values.',
      ],
    ],
    [
      'an invalid key and an invalid value',
      pods({ key: '-app', operator: 'In', values: ['a', 'b '] }),
      pods({ key: 'example.com/app', operator: 'In', values: ['a', 'b'] }),
      [
        `invalid_label ~/pod_selector/match_expressions/0/key: ${KEY}`,
        `invalid_label ~/pod_selector/match_expressions/0/values/1: ${VALUE}`,
      ],
    ],
    [
      'a value of a wrong type, with only one problem',
      pods({ key: 'app', operator: 'In', values: [1] }),
      pods({ key: 'app', operator: 'In', values: ['1'] }),
      ['invalid_type ~/pod_selector/match_expressions/0/values/0: Must be a string, not a number.'],
    ],
    [
      'wrong labels of a namespace',
      { pod_selector: { namespace_selector: { match_labels: { 'a b': 'x' }, namespace: 'shop' } } },
      { pod_selector: { namespace_selector: { match_labels: { a: 'x' } }, namespace: 'shop' } },
      [
        'unknown_field ~/pod_selector/namespace_selector/namespace: There is no field "namespace" here.',
        `invalid_label ~/pod_selector/namespace_selector/match_labels/a b: ${KEY}`,
      ],
    ],
    [
      'an invalid service account',
      { pod_selector: { service_account: 'Robot' } },
      { pod_selector: { service_account: 'robot.one' } },
      [
        'invalid_label ~/pod_selector/service_account: A service account is 1 to 253 lower-case letters, digits, "-" and ".".',
      ],
    ],
    [
      'no address of a node',
      { node_selector: { addresses: [] } },
      { node_selector: { addresses: ['InternalIP', 'ExternalIP', 'podCIDRs'] } },
      ['empty_matcher ~/node_selector/addresses: An empty list selects no address.'],
    ],
    [
      'an unknown kind of address',
      { node_selector: { addresses: ['Hostname'] } },
      { node_selector: { match_labels: { a: 'b' } } },
      ['invalid_value ~/node_selector/addresses/0: Must be "InternalIP" or "ExternalIP" or "podCIDRs".'],
    ],
    [
      'a field of pods in a selector of nodes',
      { node_selector: { service_account: 'robot' } },
      { node_selector: {} },
      ['unknown_field ~/node_selector/service_account: There is no field "service_account" here.'],
    ],
  ])('the validation of a Kubernetes selector refuses an invalid selector: %s', (_, wrong, right, expected) => {
    expect(problemsOf(wrong)).toEqual(expected);
    expect(problemsOf(right)).toEqual([]);
  });
});

describe('warnings about a Kubernetes selector', () => {
  const web = { pod_selector: { match_labels: { app: 'web' } } };
  const expression = (operator: LabelExpressionConfig['operator'], ...values: readonly string[]) => {
    return { key: 'app', operator, values } satisfies LabelExpressionConfig;
  };

  test('a Kubernetes selector that selects everything causes a warning', () => {
    const all = 'selector_matches_all ~/pod_selector';
    expect(warningsOf({ pod_selector: {} })).toEqual([all]);
    const empty = { match_labels: {}, match_expressions: [], namespace_selector: { match_labels: {} } };
    expect(warningsOf({ pod_selector: empty })).toEqual([all]);
    expect(warningsOf({ node_selector: { addresses: ['InternalIP'] } })).toEqual([
      'selector_matches_all ~/node_selector',
    ]);
    for (const limited of [
      { namespace: 'shop' },
      { service_account: 'robot' },
      { match_labels: { a: 'b' } },
      { match_expressions: [expression('Exists')] },
      { namespace_selector: { match_labels: { a: 'b' } } },
    ])
      expect(warningsOf({ pod_selector: limited })).toEqual([]);
  });

  test('a selector of pods by labels in any namespace causes a warning if its group allows packets', () => {
    const any = 'selector_any_namespace ~/pod_selector';
    const allow = { rules: [{ id: 'r', action: 'allow', match: {} }] };
    const labels = { match_labels: { a: 'b' } };
    for (const pod of [labels, { service_account: 'robot' }, { ...labels, namespace_selector: {} }]) {
      expect(warningsOf({ pod_selector: pod }, allow)).toEqual([any]);
      expect(warningsOf({ pod_selector: pod }, { default_action: 'allow' })).toEqual([any]);
      expect(warningsOf({ pod_selector: pod }, { default_action: 'deny' })).toEqual([]);
      expect(warningsOf({ pod_selector: { ...pod, namespace: 'shop' } }, allow)).toEqual([]);
      expect(warningsOf({ pod_selector: { ...pod, namespace_selector: labels } }, allow)).toEqual([]);
    }
    expect(warningsOf({ node_selector: labels }, allow)).toEqual([]);
  });

  test('a selector causes a warning about addresses that objects of other integrations have too', () => {
    const document = documentOf({ integration: 'prod', ...web }) as Parameters<typeof partsOf>[0];
    const { groups } = partsOf(document, {
      form: 'singleton',
      mode: 'enforce',
      context: { dns: true, servicePlane: true },
    });
    const sharedBy = (...integrations: readonly string[]) =>
      lintMembers(
        groups.map(({ group }) => group),
        { ...NOTHING_LISTED, shared: [{ address: 0x0a010001, integrations }] },
      ).filter(({ code }) => code === 'address_shared');
    expect(sharedBy('prod', 'test').map(({ message }) => message)).toEqual([
      'Different objects of several integrations have the same address, such as 10.1.0.1 (prod, test): no allow rule by a selector matches it, and every deny rule by a selector does.',
    ]);
    expect(sharedBy('test', 'third')).toEqual([]);
  });

  test('a selector causes a warning if it was never resolved, or if it selects no address', () => {
    const key = '{"integration":"prod","pod_selector":{"match_labels":{"app":"web"}}}';
    const warned = (resolved: readonly string[], keys: readonly string[], source: object = web) => {
      const document = documentOf({ integration: 'prod', ...source }) as Parameters<typeof partsOf>[0];
      const context = { dns: true, servicePlane: true };
      const { groups } = partsOf(document, { form: 'singleton', mode: 'enforce', context });
      const list = {
        added: [{ number: 1, keys }],
        addresses: [1],
        sets: Uint32Array.of(1),
        dropped: [],
      };
      const scope = { ...NO_SELECTORS, resolved: new Set(resolved) };
      const warnings = lintMembers(
        groups.map(({ group }) => group),
        { scope, list },
      );
      return warnings.map(({ pointer, code }) => `${code} ${pointer.replace(AT, '~')}`);
    };
    expect(warned([], [])).toEqual(['selector_unresolved ~']);
    expect(warned([key], [])).toEqual(['selector_matches_nothing ~']);
    expect(warned([key], [key])).toEqual([]);
    const never = { pod_selector: { ...web.pod_selector, match_expressions: [expression('DoesNotExist')] } };
    expect(warned([selectorOf({ integration: 'prod', ...never }).key], [], never)).toEqual([]);
  });

  const labels = { match_labels: { app: 'web' } };
  test.each<[string, LabelSelectorConfig, boolean]>([
    ['a label and another value', { ...labels, match_expressions: [expression('In', 'api')] }, true],
    ['a label and a list with its value', { ...labels, match_expressions: [expression('In', 'api', 'web')] }, false],
    ['a label and NotIn', { ...labels, match_expressions: [expression('NotIn', 'api', 'web')] }, true],
    ['a label and NotIn of others', { ...labels, match_expressions: [expression('NotIn', 'api')] }, false],
    ['a label that must not exist', { ...labels, match_expressions: [expression('DoesNotExist')] }, true],
    ['Exists and DoesNotExist', { match_expressions: [expression('Exists'), expression('DoesNotExist')] }, true],
    ['lists without a common value', { match_expressions: [expression('In', 'a'), expression('In', 'b')] }, true],
    ['lists with a common value', { match_expressions: [expression('In', 'a', 'b'), expression('In', 'b')] }, false],
    ['NotIn and DoesNotExist', { match_expressions: [expression('NotIn', 'a'), expression('DoesNotExist')] }, false],
    ['other keys', { ...labels, match_expressions: [{ key: 'b', operator: 'DoesNotExist' }] }, false],
  ])(
    'a selector causes a warning if its conditions exclude each other (conditions: %s)',
    (_, selector, contradicts) => {
      const expected = (at: string) => (contradicts ? [`selector_contradicts ~${at}`] : []);
      expect(warningsOf({ pod_selector: selector })).toEqual(expected('/pod_selector'));
      expect(warningsOf({ node_selector: selector })).toEqual(expected('/node_selector'));
      const namespaces = { pod_selector: { namespace_selector: selector } };
      expect(warningsOf(namespaces)).toEqual(expected('/pod_selector/namespace_selector'));
    },
  );
});
