import { describe, expect, it } from 'vitest';
import { fieldSelectorOf, nameOf, pathOf, type WantedObjects, watchScopesOf } from '#kubernetes/watch/watch-scopes.js';

const wanted = (more: Partial<WantedObjects>): WantedObjects => ({
  ...{ pods: new Set<string>(), nodes: false, namespaces: false, node: null },
  ...more,
});
const namespaces = (count: number) => new Set(Array.from({ length: count }, (_, index) => `ns${index}`));
const namesOf = (more: Partial<WantedObjects>) => watchScopesOf(wanted(more)).map(nameOf);

describe('scopes of an integration', () => {
  it('a Kubernetes integration that no selector names watches nothing', () => {
    expect(watchScopesOf(wanted({}))).toEqual([]);
  });

  it('a Kubernetes integration watches the pods of the named namespaces, if these are at most eight, and otherwise all pods', () => {
    expect(namesOf({ pods: new Set(['shop', 'bank']) })).toEqual(['bank/pods', 'shop/pods']);
    expect(namesOf({ pods: namespaces(8) })).toHaveLength(8);
    expect(namesOf({ pods: namespaces(9) })).toEqual(['pods']);
    expect(namesOf({ pods: 'all', nodes: true, namespaces: true })).toEqual(['pods', 'nodes', 'namespaces']);
  });

  it('an integration that is limited to one Kubernetes node watches the pods of that node, but all nodes and namespaces', () => {
    const scopes = watchScopesOf(wanted({ pods: 'all', nodes: true, namespaces: true, node: 'n1' }));
    expect(scopes.map(nameOf)).toEqual(['pods on n1', 'nodes', 'namespaces']);
    expect(scopes.map(fieldSelectorOf)).toEqual([
      'status.phase!=Succeeded,status.phase!=Failed,spec.nodeName=n1',
      undefined,
      undefined,
    ]);
  });

  it('the watch scopes (lists and watches) of a Kubernetes integration have the URL paths of the Kubernetes core API', () => {
    const scopes = watchScopesOf(wanted({ pods: new Set(['shop', '../x']), nodes: true }));
    expect(scopes.map(pathOf)).toEqual([
      '/api/v1/namespaces/..%2Fx/pods',
      '/api/v1/namespaces/shop/pods',
      '/api/v1/nodes',
    ]);
  });
});
