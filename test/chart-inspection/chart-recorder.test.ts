import { afterEach, describe, expect, it } from 'vitest';
import { createActor, createMachine, fromPromise, setup } from 'xstate';
import type { Inspection, StatechartTransition } from '#bus/statecharts.js';
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
const told = (inspections: readonly (Inspection | StatechartTransition)[]) =>
  inspections.map((inspection) => {
    if (inspection.type === 'transition') return `transition ${inspection.exited[0]?.state} ${inspection.entered[0]}`;
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

/** A gate with two parallel regions. */
const gate = setup({
  guards: { isFree: () => true },
  actions: { squeak: () => {}, dry: () => {} },
}).createMachine({
  id: 'gate',
  type: 'parallel',
  states: {
    door: {
      initial: 'shut',
      states: {
        shut: { on: { 'gate.pushed': [{ guard: 'isFree', target: 'moving' }] }, description: 'Nothing passes.' },
        moving: { always: 'open', meta: { detail: 'it moves' }, entry: 'squeak' },
        open: { on: { 'gate.painted': { actions: 'dry' }, 'gate.reset': { target: '#gate.door', reenter: true } } },
      },
    },
    bell: { initial: 'quiet', states: { quiet: { on: { 'gate.pushed': 'loud' } }, loud: { tags: 'noisy' } } },
  },
});

describe('ChartRecorder', () => {
  it('`ChartRecorder` passes on the transitions that were taken, with the states that were exited and entered, and how long they were active', () => {
    let ms = Date.UTC(2026, 0, 1);
    const recorder = new ChartRecorder(() => new Date(ms), [gate]);
    const seen: StatechartTransition[] = [];
    recorder.watch((inspection) => {
      if (inspection.type === 'transition') seen.push(inspection);
    });
    const actor = createActor(gate, { inspect: (inspected) => recorder.inspect(inspected) }).start();
    for (const event of ['gate.pushed', 'gate.painted', 'gate.unknown', 'gate.reset'] as const) {
      ms += 1_500;
      actor.send({ type: event });
    }
    const [definition] = recorder.definitions();
    const stamp = { type: 'transition', sessionId: actor.sessionId, name: 'gate', chart: 'gate' };
    expect(seen).toEqual([
      {
        ...stamp,
        time: '2026-01-01T00:00:01.500Z',
        event: 'gate.pushed',
        taken: [
          { index: 0, source: 'gate.door.shut', targets: ['gate.door.moving'], event: 'gate.pushed', guard: 'isFree' },
          { index: 4, source: 'gate.bell.quiet', targets: ['gate.bell.loud'], event: 'gate.pushed', guard: null },
        ],
        exited: [
          { state: 'gate.door.shut', afterMs: 1_500 },
          { state: 'gate.bell.quiet', afterMs: 1_500 },
        ],
        entered: ['gate.door.moving', 'gate.bell.loud'],
      },
      {
        ...stamp,
        time: '2026-01-01T00:00:01.500Z',
        event: 'gate.pushed',
        taken: [{ index: 1, source: 'gate.door.moving', targets: ['gate.door.open'], event: null, guard: null }],
        exited: [{ state: 'gate.door.moving', afterMs: 0 }],
        entered: ['gate.door.open'],
      },
      {
        ...stamp,
        time: '2026-01-01T00:00:03.000Z',
        event: 'gate.painted',
        taken: [{ index: 2, source: 'gate.door.open', targets: [], event: 'gate.painted', guard: null }],
        exited: [],
        entered: [],
      },
      {
        ...stamp,
        time: '2026-01-01T00:00:06.000Z',
        event: 'gate.reset',
        taken: [{ index: 3, source: 'gate.door.open', targets: ['gate.door'], event: 'gate.reset', guard: null }],
        exited: [
          { state: 'gate.door', afterMs: 6_000 },
          { state: 'gate.door.open', afterMs: 4_500 },
          { state: 'gate.bell', afterMs: 6_000 },
          { state: 'gate.bell.loud', afterMs: 4_500 },
        ],
        entered: ['gate.door', 'gate.door.shut', 'gate.bell', 'gate.bell.quiet'],
      },
    ]);
    expect([recorder.transitions(), recorder.charts()[0]?.transitions]).toEqual([seen, seen]);
    for (const { taken } of seen)
      for (const { index, ...one } of taken) expect(definition?.transitions[index]).toMatchObject(one);
  });

  it('`ChartRecorder` gives the definition of a statechart as plain data, an outer state before its inner states', () => {
    const [definition] = new ChartRecorder(clock(), [gate]).definitions();
    expect(definition?.states.map(({ id, parent, type, initial }) => [id, parent, type, initial])).toEqual([
      ['gate', null, 'parallel', null],
      ['gate.door', 'gate', 'compound', 'gate.door.shut'],
      ['gate.door.shut', 'gate.door', 'atomic', null],
      ['gate.door.moving', 'gate.door', 'atomic', null],
      ['gate.door.open', 'gate.door', 'atomic', null],
      ['gate.bell', 'gate', 'compound', 'gate.bell.quiet'],
      ['gate.bell.quiet', 'gate.bell', 'atomic', null],
      ['gate.bell.loud', 'gate.bell', 'atomic', null],
    ]);
    expect(definition?.states.flatMap(({ description }) => description ?? [])).toEqual(['Nothing passes.', 'it moves']);
    expect([definition?.states[3], definition?.states.at(-1)]).toMatchObject([
      { key: 'moving', entry: ['squeak'], exit: [] },
      { tags: ['noisy'], invokes: [] },
    ]);
    expect(definition?.transitions[2]).toEqual({
      source: 'gate.door.open',
      targets: [],
      event: 'gate.painted',
      guard: null,
      actions: ['dry'],
      reenter: false,
    });
  });

  it('`ChartRecorder` keeps the history of at most 200 names of actors, the latest ones', () => {
    const recorder = new ChartRecorder(clock());
    for (let at = 0; at < 300; at++) {
      const actor = createActor(lamp, { id: `lamp-${at}`, inspect: (inspected) => recorder.inspect(inspected) });
      actor.start();
      actor.send({ type: 'lamp.switched' });
      actor.stop();
    }
    const names = new Set(recorder.transitions().map(({ name }) => name));
    expect([names.size <= 200, names.has('lamp-299'), names.has('lamp-0')]).toEqual([true, true, false]);
  });

  it('`ChartRecorder` records actors, events and snapshots in the format of the Stately inspector, without context, input or output', async () => {
    const now = clock();
    const recorder = new ChartRecorder(now);
    const seen: Inspection[] = [];
    const all: (Inspection | StatechartTransition)[] = [];
    recorder.watch((inspection) => {
      all.push(inspection);
      if (inspection.type !== 'transition') seen.push(inspection);
    });
    const actor = createActor(lamp, { inspect: (inspected) => recorder.inspect(inspected) }).start();
    actor.send({ type: 'lamp.switched', secret: 'planted' });
    await expect.poll(() => actor.getSnapshot().value).toBe('off');

    expect(told(all)).toEqual([
      'actor lamp',
      'event xstate.init',
      'snapshot active "off"',
      'event lamp.switched',
      'transition lamp.off lamp.on',
      'actor burn',
      'event xstate.init',
      'snapshot active undefined',
      'snapshot active "on"',
      'event xstate.promise.resolve',
      'event xstate.done.actor.burn',
      'transition lamp.on lamp.off',
      'snapshot active "off"',
      'snapshot done undefined',
    ]);
    expect(seen).toEqual(recorder.recent());
    expect(JSON.stringify([all, recorder.charts(), recorder.actors()])).not.toContain('"planted"');
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
        chart: 'lamp',
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
        transitions: all.filter(({ type }) => type === 'transition'),
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

  it('`ChartRecorder` lists all statecharts of a running node, and keeps at most 2,000 records in all, and 100 events and 50 transitions per statechart', async () => {
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
    const definitions = new Map(system.debug.definitions().map((definition) => [definition.id, definition]));
    expect([...definitions.keys()].sort()).toEqual(Object.keys(SHOWN_CONTEXT).sort());
    const ofPolicy = system.debug.charts().find(({ name }) => name === 'policy')?.transitions ?? [];
    expect(ofPolicy).toHaveLength(50);
    for (const { chart, taken, exited, entered } of system.debug.transitions()) {
      const { states, transitions } = definitions.get(chart) ?? { states: [], transitions: [] };
      const known = states.map(({ id }) => id);
      expect(known).toEqual(expect.arrayContaining([...exited.map(({ state }) => state), ...entered]));
      expect(taken.length).toBeGreaterThan(0);
      for (const { index, ...one } of taken) expect(transitions[index]).toMatchObject(one);
    }
    expect(system.debug.actors().length).toBeLessThan(30);
    const everything = JSON.stringify([system.debug.recent(), system.debug.charts(), system.debug.actors()]);
    expect([
      everything.includes('planted-group'),
      JSON.stringify(config('planted-group')).includes('planted-group'),
    ]).toEqual([false, true]);
    expect(everything.length).toBeLessThan(8 << 20);
  });
});
