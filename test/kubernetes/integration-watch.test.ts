import type { ServerResponse } from 'node:http';
import { Subject } from 'rxjs';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type IntegrationEvent, type IntegrationTarget, watchIntegration } from '#kubernetes/integration-watch.js';
import { REFLECTOR_TIMES } from '#kubernetes/reflector.js';
import { nameOf, type Wanted } from '#kubernetes/scopes.js';
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
const NONE: Wanted = { pods: new Set(), nodes: false, namespaces: false, node: null };

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
  const target = (wanted: Partial<Wanted>, serverKey = 'a') =>
    targets.next({ server: server.api, serverKey, cluster: 'a', wanted: { ...NONE, ...wanted } });
  /** Feeds and their lists: `begun 1: …` and `1 listed pods`. */
  const feeds = () =>
    events.flatMap((event) => {
      if (event.type === 'begun') return [`begun ${event.feed}: ${event.scopes.map(nameOf).join()}`];
      if (event.type === 'dropped') return [`dropped ${event.feed}`];
      return event.type === 'objects' ? [`${event.feed} ${event.message.type} ${nameOf(event.scope)}`] : [];
    });
  const phases = (name: string) =>
    events.flatMap((event) => (event.type === 'reflector.changed' && event.name === name ? [event.phase] : []));
  /** Sends a change in each watch. */
  const tell = () => {
    for (const watch of watches) watch.write(lineOf('MODIFIED', podOf('a', 7)));
  };
  return { server, refused, tell, target, feeds, phases };
}

describe('watch of an integration', () => {
  it('has one reflector for each scope, and asks nothing again for the same scopes', async () => {
    const { server, target, feeds, phases } = await start();
    target({ pods: 'all', nodes: true });
    await vi.waitFor(() => expect(phases('nodes').at(-1)).toBe('watching'));
    await vi.waitFor(() => expect(phases('pods').at(-1)).toBe('watching'));
    target({ pods: 'all', nodes: true });
    expect(feeds()[0]).toBe('begun 1: pods,nodes');
    expect(feeds().slice(1).sort()).toEqual(['1 listed nodes', '1 listed pods']);
    expect(server.asked).toHaveLength(4);
    expect(await server.connections).toBe(2);
  });

  it('keeps the feed before until each scope of the new feed has a list', async () => {
    const { server, refused, tell, target, feeds, phases } = await start();
    target({ pods: new Set(['shop']) });
    await vi.waitFor(() => expect(phases('shop/pods')).toEqual(['connecting', 'listing', 'watching']));
    refused.add('/api/v1/namespaces/bank/pods');
    target({ pods: new Set(['shop', 'bank']) });
    await vi.waitFor(() => expect(phases('bank/pods').at(-1)).toBe('forbidden'));
    await vi.waitFor(() => expect(phases('shop/pods').at(-1)).toBe('watching'));
    tell();
    await vi.waitFor(() => expect(feeds().slice(-2).sort()).toEqual(['1 changed shop/pods', '2 changed shop/pods']));
    refused.clear();
    await vi.waitFor(() => expect(phases('bank/pods').at(-1)).toBe('watching'));
    expect(feeds().at(-1)).toBe('2 listed bank/pods');
    tell();
    await vi.waitFor(() => expect(feeds().slice(-2).sort()).toEqual(['2 changed bank/pods', '2 changed shop/pods']));
    await vi.waitFor(async () => expect(await server.connections).toBe(2));
  });

  it('lists again from a server with another key, and ends its reflectors if nothing is wanted any more', async () => {
    const { server, target, feeds, phases } = await start();
    target({ pods: 'all' });
    await vi.waitFor(() => expect(phases('pods').at(-1)).toBe('watching'));
    target({ pods: 'all' }, 'b');
    await vi.waitFor(() => expect(feeds()).toContain('2 listed pods'));
    await vi.waitFor(async () => expect(await server.connections).toBe(1));
    target({}, 'b');
    expect(feeds().at(-1)).toBe('begun 3: ');
    expect(phases('pods').at(-1)).toBe(null);
    await vi.waitFor(async () => expect(await server.connections).toBe(0));
  });

  it('goes back to the feed in force without a list, and drops the feed that is not complete', async () => {
    const { server, refused, tell, target, feeds, phases } = await start();
    target({ pods: new Set(['shop']) });
    await vi.waitFor(() => expect(phases('shop/pods').at(-1)).toBe('watching'));
    refused.add('/api/v1/namespaces/bank/pods');
    target({ pods: new Set(['shop', 'bank']) });
    await vi.waitFor(() => expect(phases('bank/pods').at(-1)).toBe('forbidden'));
    target({ pods: new Set(['shop']) });
    expect([phases('bank/pods').at(-1), phases('shop/pods').at(-1)]).toEqual([null, 'watching']);
    await vi.waitFor(async () => expect(await server.connections).toBe(1));
    tell();
    await vi.waitFor(() => expect(feeds().at(-1)).toBe('1 changed shop/pods'));
    expect(feeds().filter((event) => !event.startsWith('1 ') && event !== '2 listed shop/pods')).toEqual([
      'begun 1: shop/pods',
      'begun 2: bank/pods,shop/pods',
      'dropped 2',
    ]);
    // A feed that begins afterwards takes the place of the feed in force.
    refused.clear();
    target({ pods: new Set(['shop', 'bank']) });
    await vi.waitFor(() => expect(feeds()).toContain('3 listed bank/pods'));
    await vi.waitFor(async () => expect(await server.connections).toBe(2));
  });

  it('drops a feed that is not complete if another begins', async () => {
    const { refused, target, feeds, phases } = await start();
    refused.add('/api/v1/nodes');
    target({ nodes: true });
    await vi.waitFor(() => expect(phases('nodes').at(-1)).toBe('forbidden'));
    target({ pods: 'all' });
    await vi.waitFor(() => expect(phases('pods').at(-1)).toBe('watching'));
    const reports = phases('nodes').length;
    refused.clear();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(feeds()).toEqual(['begun 1: nodes', 'begun 2: pods', '2 listed pods']);
    expect(phases('nodes')).toHaveLength(reports);
    expect(phases('nodes').at(-1)).toBe(null);
  });
});
