import { afterEach, describe, expect, it } from 'vitest';
import { createActor, createMachine, fromPromise, setup } from 'xstate';
import type { Inspection } from '#bus/statecharts.js';
import { ChartRecorder } from '#chart-inspection/chart-recorder.js';
import { SHOWN_CONTEXT } from '#chart-inspection/shown-snapshot.js';
import { CHARTS } from '#statecharts/charts.js';
import { PARTS } from '#statecharts/node.chart.js';
import { config, envelope, startSystem, stopSystems, write } from '../actors/running-system.js';

afterEach(stopSystems);

const clock = () => {
  let ms = Date.UTC(2026, 0, 1);
  return () => new Date(ms++);
};

/**
 * Returns each inspection event as text, without times and session ids, because times and ids differ between
 * test runs.
 */
const told = (inspections: readonly Inspection[]) =>
  inspections.map((inspection) => {
    if (inspection.type === '@xstate.actor') return `actor ${inspection.name}`;
    if (inspection.type === '@xstate.event') return `event ${inspection.event.type}`;
    return `snapshot ${inspection.snapshot.status} ${JSON.stringify(inspection.snapshot.value)}`;
  });

const lamp = setup({
  actors: { burn: fromPromise(async ({ input }: { input: unknown }) => ({ input, secret: 'planted' })) },
}).createMachine({
  id: 'lamp',
  initial: 'off',
  context: () => ({ secret: 'planted' }),
  states: {
    off: { tags: 'dark', on: { 'lamp.switched': 'on' } },
    on: {
      invoke: {
        id: 'burn',
        src: 'burn',
        input: () => ({ secret: 'planted' }),
        onDone: 'off',
      },
    },
  },
});

describe('ChartRecorder', () => {
  it('`ChartRecorder` records actors, events and snapshots in the format of the Stately inspector, without context, input or output', async () => {
    const now = clock();
    const recorder = new ChartRecorder(now);
    const seen: Inspection[] = [];
    recorder.watch((inspection) => seen.push(inspection));
    const actor = createActor(lamp, { inspect: (inspected) => recorder.inspect(inspected) }).start();
    actor.send({ type: 'lamp.switched', secret: 'planted' });
    await expect.poll(() => actor.getSnapshot().value).toBe('off');

    expect(told(seen)).toEqual([
      'actor lamp',
      'event xstate.init',
      'snapshot active "off"',
      'event lamp.switched',
      'actor burn',
      'event xstate.init',
      'snapshot active undefined',
      'snapshot active "on"',
      'event xstate.promise.resolve',
      'event xstate.done.actor.burn',
      'snapshot active "off"',
      'snapshot done undefined',
    ]);
    expect(seen).toEqual(recorder.recent());
    expect(JSON.stringify([seen, recorder.charts(), recorder.actors()])).not.toContain('"planted"');
    const stamp = { sessionId: actor.sessionId, rootId: actor.sessionId, _version: '0.7.2', id: null };
    expect(seen.slice(0, 3)).toEqual([
      {
        type: '@xstate.actor',
        ...stamp,
        name: 'lamp',
        parentId: undefined,
        definition: expect.stringContaining('"id":"lamp"') as string,
        snapshot: { status: 'active', value: 'off', context: {}, tags: ['dark'], children: {}, historyValue: {} },
        createdAt: expect.stringMatching(/^\d{13}$/) as string,
      },
      {
        type: '@xstate.event',
        ...stamp,
        sourceId: undefined,
        event: { type: 'xstate.init' },
        createdAt: expect.stringMatching(/^\d{13}$/) as string,
      },
      {
        type: '@xstate.snapshot',
        ...stamp,
        event: { type: 'xstate.init' },
        snapshot: { status: 'active', value: 'off', context: {}, tags: ['dark'], children: {}, historyValue: {} },
        createdAt: expect.stringMatching(/^\d{13}$/) as string,
      },
    ]);
    expect(recorder.charts()).toEqual([
      {
        name: 'lamp',
        sessionId: actor.sessionId,
        parentId: null,
        definition: JSON.parse((seen[0] as { definition: string }).definition) as unknown,
        status: 'active',
        value: 'off',
        tags: ['dark'],
        context: {},
        since: expect.stringMatching(/^2026-01-01T/) as string,
        recent: ['xstate.init', 'lamp.switched', 'xstate.done.actor.burn'].map((event, at) => ({
          time: expect.any(String) as string,
          event,
          value: ['off', 'on', 'off'][at],
        })),
      },
    ]);
    expect(told(recorder.actors())).toEqual(['actor lamp']);
    actor.stop();
    expect(recorder.actors()).toEqual([]);
  });

  it('`ChartRecorder` records the end of an actor whose action throws, without the text of the error', async () => {
    const recorder = new ChartRecorder(clock());
    const parent = createMachine({
      id: 'parent',
      initial: 'up',
      states: {
        up: {
          invoke: {
            id: 'child',
            src: createMachine({
              id: 'child',
              on: {
                throw: {
                  actions: () => {
                    throw new Error('planted');
                  },
                },
              },
            }),
            onError: 'down',
          },
        },
        down: {},
      },
    });
    const actor = createActor(parent, { inspect: (inspected) => recorder.inspect(inspected) }).start();
    expect(told(recorder.actors())).toEqual(['actor parent', 'actor child']);
    actor.getSnapshot().children.child?.send({ type: 'throw' });
    expect(told(recorder.actors())).toEqual(['actor parent']);
    expect(told(recorder.recent()).slice(-4)).toEqual([
      'event throw',
      'snapshot error {}',
      'event xstate.error.actor.child',
      'snapshot active "down"',
    ]);
    expect(JSON.stringify(recorder.recent().slice(-4))).not.toContain('"planted"');
  });

  it('`ChartRecorder` lists all statecharts of a running node, and keeps at most 2,000 records in all and 100 per statechart', async () => {
    const { system, until } = await startSystem();
    await until('policy_ready', 'never_activated');
    const running = system.debug.charts();
    expect(running.map(({ name }) => name).sort()).toEqual(['node', 'interfaces', ...PARTS].sort());
    expect(Object.keys(SHOWN_CONTEXT).sort()).toEqual(
      Object.values(CHARTS)
        .map(({ id }) => id)
        .sort(),
    );
    for (const { definition, context } of running) {
      const { id } = definition as { id: string };
      expect([id, Object.keys(context)]).toEqual([id, SHOWN_CONTEXT[id]]);
    }

    for (let at = 0; at < 60; at++) {
      const name = at % 2 === 0 ? 'even' : 'odd';
      await system.policies.write(write(envelope(`planted-group-${at}`, { name }), { target: { by: 'name', name } }));
    }
    expect(system.debug.recent()).toHaveLength(2_000);
    expect(system.debug.charts().map(({ recent }) => recent.length <= 100)).toEqual(running.map(() => true));
    expect(system.debug.actors().length).toBeLessThan(30);
    const everything = JSON.stringify([system.debug.recent(), system.debug.charts(), system.debug.actors()]);
    expect([
      everything.includes('planted-group'),
      JSON.stringify(config('planted-group')).includes('planted-group'),
    ]).toEqual([false, true]);
    expect(everything.length).toBeLessThan(8 << 20);
  });
});
