import { describe, expect, test } from 'vitest';
import type { LabelSelectorConfig, PodSelectorConfig } from '#contracts/policy/policy-document.js';
import { SelectorIndex } from '#kubernetes/selectors/selector-index.js';
import { isSelected, parseSelector } from '#kubernetes/selectors/selectors.js';
import { wantedObjectsOf } from '#kubernetes/watch/wanted-objects.js';
import { selectorOf } from '#policy/model/sources/selector.js';
import { Random, seedOf } from '#test/seed.js';
import { RandomCluster, randomSelector } from './random-cluster.js';
import { namespace, node, nodeSelector, pod, podSelector } from './sample.js';

describe('a selector of pods', () => {
  const web = pod('web', { labels: { app: 'web', tier: '' }, serviceAccount: 'robot' });
  const shop = namespace('shop', { team: 'blue' }).labels;
  const selects = (selector: PodSelectorConfig, labels: readonly string[] | undefined = shop) =>
    isSelected(parseSelector(podSelector(selector)), web, labels);
  const expression = (operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist', key: string, ...values: string[]) =>
    ({ match_expressions: [{ key, operator, values }] }) satisfies LabelSelectorConfig;

  test.each<[string, PodSelectorConfig, boolean]>([
    ['an empty selector', {}, true],
    ['a label', { match_labels: { app: 'web' } }, true],
    ['an empty label value', { match_labels: { tier: '' } }, true],
    ['an empty label value, and no such label', { match_labels: { team: '' } }, false],
    ['another value', { match_labels: { app: 'api' } }, false],
    ['one of two labels', { match_labels: { app: 'web', team: 'red' } }, false],
    ['In with the value', expression('In', 'app', 'api', 'web'), true],
    ['In without the value', expression('In', 'app', 'api'), false],
    ['In and no such label', expression('In', 'team', 'web'), false],
    ['NotIn with the value', expression('NotIn', 'app', 'web'), false],
    ['NotIn without the value', expression('NotIn', 'app', 'api'), true],
    ['NotIn and no such label', expression('NotIn', 'team', 'web'), true],
    ['Exists', expression('Exists', 'tier'), true],
    ['Exists and no such label', expression('Exists', 'team'), false],
    ['DoesNotExist', expression('DoesNotExist', 'tier'), false],
    ['DoesNotExist and no such label', expression('DoesNotExist', 'team'), true],
    ['the namespace', { namespace: 'shop' }, true],
    ['another namespace', { namespace: 'bank' }, false],
    ['the service account', { service_account: 'robot' }, true],
    ['another service account', { service_account: 'default' }, false],
    ['a label of the namespace', { namespace_selector: { match_labels: { team: 'blue' } } }, true],
    ['another label of the namespace', { namespace_selector: { match_labels: { team: 'red' } } }, false],
    ['every namespace that exists', { namespace_selector: {} }, true],
  ])(
    'a Kubernetes selector of pods selects only pods that meet all its conditions (condition: %s)',
    (_, selector, expected) => expect(selects(selector)).toBe(expected),
  );

  test('a Kubernetes selector of pods with a namespace_selector selects no pod of an unknown namespace', () => {
    const selector = parseSelector(podSelector({ namespace_selector: expression('DoesNotExist', 'team') }));
    expect(isSelected(selector, web, undefined)).toBe(false);
    expect(isSelected(selector, web, [])).toBe(true);
  });

  test('a Kubernetes selector of pods selects no node', () => {
    expect(isSelected(parseSelector(podSelector({})), node('n'), undefined)).toBe(false);
    expect(isSelected(parseSelector(nodeSelector({})), web, shop)).toBe(false);
  });
});

describe('SelectorIndex', () => {
  test('`SelectorIndex` finds the same selectors as a test of every selector', () => {
    const random = new Random(seedOf(26));
    let found = 0;
    for (let round = 0; round < 300; round++) {
      const keys = random.some(0, 40, () => randomSelector(random, 'prod'));
      const selectors = [...new Map(keys.map((selector) => [selector.key, selector])).values()].map(parseSelector);
      const index = new SelectorIndex(selectors);
      const cluster = new RandomCluster(random);
      for (let change = 0; change < 30; change++) cluster.change();
      for (const object of cluster.objects) {
        const labels = random.chance(0.8) ? namespace('shop', { tier: 'a' }).labels : undefined;
        const expected = selectors.filter((selector) => isSelected(selector, object, labels)).map(({ key }) => key);
        const matching = index.matching(object, labels).map(({ key }) => key);
        expect(matching).toEqual(expected.sort());
        found += matching.length;
      }
    }
    expect(found).toBeGreaterThan(1_000);
  });

  test('`SelectorIndex` tests few of 10,000 selectors for one pod', () => {
    let tested = 0;
    const selectors = Array.from({ length: 10_000 }, (_, index) => {
      const labels = { app: 'web', [`owner-${index % 10}`]: `team-${index}` };
      const selector = parseSelector(podSelector({ namespace: 'shop', match_labels: labels }));
      return {
        ...selector,
        get labels() {
          tested++;
          return selector.labels;
        },
      };
    });
    const index = new SelectorIndex(selectors);
    tested = 0;
    const matching = index.matching(pod('web', { labels: { app: 'web', 'owner-7': 'team-7' } }), undefined);
    expect(matching).toHaveLength(1);
    expect(tested).toBe(1);
  });
});

describe('selectorOf', () => {
  test('`selectorOf` gives equal keys to selectors that differ only in the order of fields', () => {
    const a = selectorOf({ integration: 'prod', pod_selector: { namespace: 'a', match_labels: { x: '1', y: '2' } } });
    const b = selectorOf({ pod_selector: { match_labels: { y: '2', x: '1' }, namespace: 'a' }, integration: 'prod' });
    expect(a.key).toBe(b.key);
  });
});

describe('wantedObjectsOf', () => {
  const options = { node: null, areNewPodsDenyOnly: true, hasPodNetworks: false };
  const shop = podSelector({ namespace: 'shop' });

  test('`wantedObjectsOf` returns all pods and the nodes if pods must match no allow rule before they are known', () => {
    const all = { pods: 'all', nodes: true, namespaces: false, node: null };
    expect(wantedObjectsOf([shop], options)).toEqual(all);
    expect(wantedObjectsOf([shop], { ...options, hasPodNetworks: true })).toEqual({ ...all, nodes: false });
    expect(wantedObjectsOf([shop], { ...options, node: 'node-1' })).toEqual({ ...all, node: 'node-1' });
  });

  test('`wantedObjectsOf` returns only the namespaces of selectors if pods may match allow rules before they are known', () => {
    const some = { ...options, areNewPodsDenyOnly: false };
    const bank = podSelector({ namespace: 'bank', service_account: 'robot' });
    const two = { pods: new Set(['shop', 'bank']), nodes: false, namespaces: false, node: null };
    expect(wantedObjectsOf([shop, bank], some)).toEqual(two);
    expect(wantedObjectsOf([shop, podSelector({})], some)).toEqual({ ...two, pods: 'all' });
    const labelled = podSelector({ namespace_selector: { match_labels: { team: 'blue' } } });
    expect(wantedObjectsOf([labelled], some)).toEqual({ ...two, pods: 'all', namespaces: true });
  });

  test('`wantedObjectsOf` returns the nodes, and no pods, for a selector of nodes', () => {
    const expected = { pods: new Set(), nodes: true, namespaces: false, node: null };
    expect(wantedObjectsOf([nodeSelector({})], options)).toEqual(expected);
    expect(wantedObjectsOf([], options)).toEqual({ ...expected, nodes: false });
  });
});
