import type { ServerResponse } from 'node:http';
import { Subject } from 'rxjs';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type IntegrationEvent,
  type IntegrationTarget,
  watchIntegration,
} from '#kubernetes/watch/integration-watch.js';
import { REFLECTOR_TIMES } from '#kubernetes/watch/reflector.js';
import { nameOf, type WantedObjects } from '#kubernetes/watch/watch-scopes.js';
import { eventually } from '#test/eventually.js';
import {
  type Asked,
  bookmark,
  lineOf,
  podOf,
  ScriptedServer,
  sendList,
  sendStatus,
} from '#test/kubernetes/scripted-server.js';

const TIMES = { ...REFLECTOR_TIMES, firstBackoffMs: 1, mostBackoffMs: 20 };
const NONE: WantedObjects = { pods: new Set(), nodes: false, namespaces: false, node: null };

/** A server whose lists have one object with the name of the path. `refused`: the paths that it refuses. */
async function start() {
  const refused = new Set<string>();
  const watches: ServerResponse[] = [];
  const server = await ScriptedServer.start(({ path, query }: Asked, response) => {
    if (refused.has(path)) sendStatus(response, 403, 'no');
    else if (query.has('watch')) {
      response.write(bookmark(6));
      watches.push(response);
    } else sendList(response, 5, [podOf(path, 3)]);
  });
  const targets = new Subject<IntegrationTarget>();
  const events: IntegrationEvent<string>[] = [];
  const keep = (value: unknown) => (value as ReturnType<typeof podOf>).metadata.uid;
  const subscription = watchIntegration(targets, () => keep, TIMES).subscribe((event) => events.push(event));
  onTestFinished(() => subscription.unsubscribe());
  const target = (wanted: Partial<WantedObjects>, serverKey = 'a') =>
    targets.next({ server: server.api, serverKey, cluster: 'a', wanted: { ...NONE, ...wanted } });
  /** The events as texts: `begun 2: nodes,pods of 1` if feed 2 keeps the pods of feed 1; `1 listed pods`. */
  const feeds = () =>
    events.flatMap((event) => {
      if (event.type === 'begun') {
        const of = new Map(event.kept.map((kept) => [nameOf(kept.scope), ` of ${kept.of}`]));
        const names = event.scopes.map(nameOf).map((name) => `${name}${of.get(name) ?? ''}`);
        return [`begun ${event.feed}: ${names.join()}`];
      }
      return event.type === 'objects' ? [`${event.feed} ${event.message.type} ${nameOf(event.scope)}`] : [];
    });
  const phases = (name: string) =>
    events.flatMap((event) => (event.type === 'reflector.changed' && event.name === name ? [event.phase] : []));
  /** Sends a changed pod to each open watch. */
  const tell = () => {
    for (const watch of watches) watch.write(lineOf('MODIFIED', podOf('a', 7)));
  };
  /** How often each path was listed. */
  const lists = () => {
    const counts: Record<string, number> = {};
    for (const { path, query } of server.asked)
      if (!query.has('watch') && query.get('limit') !== '1') counts[path] = (counts[path] ?? 0) + 1;
    return counts;
  };
  return { server, refused, tell, target, feeds, phases, lists };
}

describe('watch of an integration', () => {
  it('a Kubernetes integration has one reflector for each watch scope (the objects of one list and watch), and sends no new request if the scopes stay the same', async () => {
    const { server, target, feeds, phases } = await start();
    target({ pods: 'all', nodes: true });
    await eventually(() => expect(phases('nodes').at(-1)).toBe('watching'));
    await eventually(() => expect(phases('pods').at(-1)).toBe('watching'));
    target({ pods: 'all', nodes: true });
    expect(feeds()[0]).toBe('begun 1: pods,nodes');
    expect(feeds().slice(1).sort()).toEqual(['1 listed nodes', '1 listed pods']);
    expect(server.asked).toHaveLength(4);
    expect(await server.connections).toBe(2);
  });

  it('a Kubernetes integration keeps its former watches until each watch scope (the objects of one list and watch) of the new selectors has a list', async () => {
    const { server, refused, tell, target, feeds, phases } = await start();
    target({ pods: 'all' });
    await eventually(() => expect(phases('pods')).toEqual(['connecting', 'listing', 'watching']));
    refused.add('/api/v1/nodes');
    target({ pods: 'all', nodes: true }, 'b');
    await eventually(() => expect(phases('nodes').at(-1)).toBe('forbidden'));
    await eventually(() => expect(phases('pods').at(-1)).toBe('watching'));
    tell();
    await eventually(() => expect(feeds().slice(-2).sort()).toEqual(['1 changed pods', '2 changed pods']));
    refused.clear();
    await eventually(() => expect(phases('nodes').at(-1)).toBe('watching'));
    expect(feeds().at(-1)).toBe('2 listed nodes');
    tell();
    await eventually(() => expect(feeds().slice(-2).sort()).toEqual(['2 changed nodes', '2 changed pods']));
    await eventually(async () => expect(await server.connections).toBe(2));
  });

  it('a Kubernetes integration keeps the reflectors of watch scopes (the objects of one list and watch) that it had before, and lists only the new scopes', async () => {
    const { server, refused, tell, target, feeds, phases, lists } = await start();
    target({ pods: new Set(['shop']) });
    await eventually(() => expect(phases('shop/pods')).toEqual(['connecting', 'listing', 'watching']));
    refused.add('/api/v1/namespaces/bank/pods');
    target({ pods: new Set(['shop', 'bank']) });
    await eventually(() => expect(phases('bank/pods').at(-1)).toBe('forbidden'));
    tell();
    await eventually(() => expect(feeds().at(-1)).toBe('1 changed shop/pods'));
    refused.clear();
    await eventually(() => expect(phases('bank/pods').at(-1)).toBe('watching'));
    tell();
    await eventually(() => expect(feeds().slice(-2).sort()).toEqual(['2 changed bank/pods', '2 changed shop/pods']));
    target({ pods: new Set(['bank']) });
    expect(phases('shop/pods')).toEqual(['connecting', 'listing', 'watching', null]);
    await eventually(async () => expect(await server.connections).toBe(1));
    tell();
    await eventually(() => expect(feeds().at(-1)).toBe('3 changed bank/pods'));
    expect(feeds().filter((event) => !event.includes('changed'))).toEqual([
      'begun 1: shop/pods',
      '1 listed shop/pods',
      'begun 2: bank/pods,shop/pods of 1',
      '2 listed bank/pods',
      'begun 3: bank/pods of 2',
    ]);
    expect(phases('bank/pods').at(-1)).toBe('watching');
    expect(lists()['/api/v1/namespaces/shop/pods']).toBe(1);
  });

  it('a Kubernetes integration keeps the reflectors of watch scopes (the objects of one list and watch) that are not listed yet when another scope is added', async () => {
    const { refused, target, feeds, phases, lists } = await start();
    refused.add('/api/v1/nodes');
    target({ pods: new Set(['shop']), nodes: true });
    await eventually(() => expect(phases('shop/pods').at(-1)).toBe('watching'));
    await eventually(() => expect(phases('nodes').at(-1)).toBe('forbidden'));
    target({ pods: new Set(['shop', 'bank']), nodes: true });
    await eventually(() => expect(phases('bank/pods').at(-1)).toBe('watching'));
    expect(feeds()).toEqual([
      'begun 1: shop/pods,nodes',
      '1 listed shop/pods',
      'begun 2: bank/pods,shop/pods of 1,nodes of 1',
      '2 listed bank/pods',
    ]);
    refused.clear();
    await eventually(() => expect(feeds().at(-1)).toBe('2 listed nodes'));
    expect(lists()['/api/v1/namespaces/shop/pods']).toBe(1);
  });

  it('a Kubernetes integration keeps no reflector of a former server or of former credentials', async () => {
    const { server, refused, tell, target, feeds, phases } = await start();
    target({ pods: 'all' });
    await eventually(() => expect(phases('pods').at(-1)).toBe('watching'));
    refused.add('/api/v1/pods');
    target({ pods: 'all' }, 'b');
    await eventually(() => expect(phases('pods').at(-1)).toBe('forbidden'));
    target({ pods: 'all', nodes: true });
    await eventually(() => expect(phases('nodes').at(-1)).toBe('watching'));
    expect(phases('pods').slice(-2)).toEqual([null, 'watching']);
    await eventually(async () => expect(await server.connections).toBe(2));
    tell();
    await eventually(() => expect(feeds().slice(-2).sort()).toEqual(['3 changed nodes', '3 changed pods']));
    expect(feeds().filter((event) => !event.includes('changed'))).toEqual([
      'begun 1: pods',
      '1 listed pods',
      'begun 2: pods',
      'begun 3: pods of 1,nodes',
      '3 listed nodes',
    ]);
  });

  it('a Kubernetes integration lists again after a change of the server or the credentials, and ends its reflectors if no selector needs objects', async () => {
    const { server, target, feeds, phases } = await start();
    target({ pods: 'all' });
    await eventually(() => expect(phases('pods').at(-1)).toBe('watching'));
    target({ pods: 'all' }, 'b');
    await eventually(() => expect(feeds()).toContain('2 listed pods'));
    await eventually(async () => expect(await server.connections).toBe(1));
    target({}, 'b');
    expect(feeds().at(-1)).toBe('begun 3: ');
    expect(phases('pods').at(-1)).toBe(null);
    await eventually(async () => expect(await server.connections).toBe(0));
  });

  it('a Kubernetes integration returns to its former watch scopes (the objects of one list and watch) without a new list, and ends the watches that were not complete yet', async () => {
    const { server, refused, tell, target, feeds, phases } = await start();
    target({ pods: new Set(['shop']) });
    await eventually(() => expect(phases('shop/pods').at(-1)).toBe('watching'));
    refused.add('/api/v1/namespaces/bank/pods');
    target({ pods: new Set(['shop', 'bank']) });
    await eventually(() => expect(phases('bank/pods').at(-1)).toBe('forbidden'));
    target({ pods: new Set(['shop']) });
    expect([phases('bank/pods').at(-1), phases('shop/pods').at(-1)]).toEqual([null, 'watching']);
    await eventually(async () => expect(await server.connections).toBe(1));
    tell();
    await eventually(() => expect(feeds().at(-1)).toBe('3 changed shop/pods'));
    expect(feeds().slice(0, -1)).toEqual([
      'begun 1: shop/pods',
      '1 listed shop/pods',
      'begun 2: bank/pods,shop/pods of 1',
      'begun 3: shop/pods of 1',
    ]);
    // A feed that begins later replaces the feed in force.
    refused.clear();
    target({ pods: new Set(['shop', 'bank']) });
    await eventually(() => expect(feeds()).toContain('4 listed bank/pods'));
    await eventually(async () => expect(await server.connections).toBe(2));
  });

  it('a Kubernetes integration ends watches whose lists are not complete if other watch scopes (the objects of one list and watch) replace them', async () => {
    const { refused, target, feeds, phases } = await start();
    refused.add('/api/v1/nodes');
    target({ nodes: true });
    await eventually(() => expect(phases('nodes').at(-1)).toBe('forbidden'));
    target({ pods: 'all' });
    await eventually(() => expect(phases('pods').at(-1)).toBe('watching'));
    const reports = phases('nodes').length;
    refused.clear();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(feeds()).toEqual(['begun 1: nodes', 'begun 2: pods', '2 listed pods']);
    expect(phases('nodes')).toHaveLength(reports);
    expect(phases('nodes').at(-1)).toBe(null);
  });

  it('a Kubernetes integration lists each watch scope (the objects of one list and watch) once more if one scope finds the server at an older version', async () => {
    const { server, target, phases, lists } = await start();
    target({ pods: 'all', nodes: true, namespaces: true });
    for (const name of ['pods', 'nodes', 'namespaces'])
      await eventually(() => expect(phases(name).at(-1)).toBe('watching'));
    // The watches of nodes and of namespaces stay open and silent, as after a restored backup.
    server.answer = ({ query, path }, response) => {
      if (query.has('watch')) response.write(bookmark(3));
      else sendList(response, 3, [podOf(path, 2)]);
    };
    server.cut('/api/v1/pods');
    await eventually(() => expect(lists()).toEqual({ '/api/v1/pods': 2, '/api/v1/nodes': 2, '/api/v1/namespaces': 2 }));
    for (const name of ['pods', 'nodes', 'namespaces'])
      await eventually(() => expect(phases(name).at(-1)).toBe('watching'));
    expect(Object.values(lists())).toEqual([2, 2, 2]);
  });
});
