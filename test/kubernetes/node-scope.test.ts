import { afterEach, describe, expect, test } from 'vitest';
import { Memberships } from '#kubernetes/members/memberships.js';
import { wantedObjectsOf } from '#kubernetes/watch/wanted-objects.js';
import { eventually } from '#test/eventually.js';
import { node, nodeSelector, podSelector, scope } from './sample.js';
import { Cluster, ends, Node, OPTIONS, web } from './thread-node.js';

afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

describe('the watch of the pods of one node only', () => {
  test('a node that watches only its own pods also watches the nodes, even if the pod networks are configured', () => {
    const options = { node: 'n1', areNewPodsDenyOnly: true, hasPodNetworks: true };
    expect(wantedObjectsOf([web], options)).toMatchObject({ nodes: true });
    expect(wantedObjectsOf([web], { ...options, areNewPodsDenyOnly: false })).toMatchObject({ nodes: true });
    expect(wantedObjectsOf([], options)).toMatchObject({ nodes: false });
  });

  test.each([
    ['of all namespaces', null, web],
    ['of one namespace', 'shop', podSelector({ namespace: 'shop' })],
  ])(
    'no Kubernetes selector of pods %s is resolved unless the cluster has the node whose pods are watched',
    (_, namespace, selector) => {
      const memberships = new Memberships();
      const nodes = nodeSelector({});
      memberships.setSelectors([selector, nodes]);
      const resolved = () => {
        memberships.drainChanges();
        expect(memberships.areResolvable([selector])).toBe(memberships.resolution.resolved.has(selector.key));
        return [...memberships.resolution.resolved];
      };
      const receive = (...message: Parameters<Memberships['receive']> extends [string, ...infer Rest] ? Rest : never) =>
        memberships.receive('prod', ...message);
      receive(scope('pods', namespace, 'n1'), { type: 'listed', objects: [], version: 1 });
      expect(resolved()).toEqual([]);
      expect(memberships.warnings('prod').map(({ code }) => code)).not.toContain('node_unknown');
      receive(scope('nodes'), { type: 'listed', objects: [node('n2')], version: 1 });
      expect(resolved()).toEqual([nodes.key]);
      expect(memberships.warnings('prod')).toContainEqual({ code: 'node_unknown', integration: 'prod', node: 'n1' });
      receive(scope('nodes'), { type: 'changed', object: node('n1', { version: 2 }) });
      expect(resolved()).toEqual([selector.key, nodes.key]);
      expect(memberships.warnings('prod').map(({ code }) => code)).not.toContain('node_unknown');
      receive(scope('nodes'), { type: 'deleted', uid: 'n1', version: 3 });
      expect(resolved()).toEqual([nodes.key]);
    },
  );

  test('the status of a Kubernetes integration names the configured node if the cluster does not have that node', async () => {
    const cluster = await Cluster.start();
    const source = await new Node(undefined, { ...OPTIONS, node: 'n9' }).open([cluster.integration]);
    await eventually(() => expect(source.scope).toBeDefined());
    expect(source.scope?.resolved.size).toBe(0);
    expect((await source.source.facts('prod')).warnings).toContainEqual({
      code: 'node_unknown',
      message:
        'the cluster has no node n9, whose pods this node watches (kubernetes.scope): no selector of pods is resolved',
    });
  });
});
