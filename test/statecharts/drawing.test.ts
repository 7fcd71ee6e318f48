import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createMachine } from 'xstate';
import { CHARTS } from '#statecharts/charts.js';
import { drawChart } from '#statecharts/drawing.js';
import { WALKS } from './walks.js';

const folder = new URL('../../docs/statecharts/', import.meta.url);

for (const [name, chart] of Object.entries(CHARTS)) {
  test(`docs/statecharts/${name}.md equals the page that \`drawChart\` returns (update: npm run charts)`, () => {
    expect(readFileSync(new URL(`${name}.md`, folder), 'utf8')).toBe(drawChart(chart));
  });

  test(`the diagram of the ${name} chart has at most 60 lines of at most 160 characters`, () => {
    const lines = drawChart(chart).split('```')[1]?.split('\n') ?? [];
    expect([lines.length > 60, lines.filter((line) => line.length > 160)]).toEqual([false, []]);
  });
}

test('CHARTS and WALKS contain every chart file of the folder statecharts', () => {
  const files = readdirSync(new URL('../../statecharts/', import.meta.url))
    .filter((file) => file.endsWith('.chart.ts'))
    .map((file) => file.replace('.chart.ts', ''))
    .sort();
  expect(Object.keys(CHARTS).sort()).toEqual(files);
  expect(
    Object.values(CHARTS)
      .map(({ id }) => id)
      .sort(),
  ).toEqual(Object.keys(WALKS).sort());
});

test('`drawChart` draws parallel regions side by side inside the chart', () => {
  const chart = createMachine({
    id: 'lamp',
    type: 'parallel',
    states: { power: { initial: 'off', states: { off: {} } }, hue: { initial: 'warm', states: { warm: {} } } },
  });
  expect(drawChart(chart).split('```')[1]).toBe(`mermaid
stateDiagram-v2
  state lamp {
    state power {
      [*] --> off
    }
    --
    state hue {
      [*] --> warm
    }
  }
`);
});

test('`drawChart` draws an arrow between composite states if a transition connects their inner states', () => {
  const chart = createMachine({
    id: 'lamp',
    initial: 'off',
    states: {
      off: { on: { 'switch.pressed': { guard: 'hasPower', target: '#lamp.on.bright' } } },
      on: {
        initial: 'dim',
        states: { dim: { always: 'bright' }, bright: { after: { timeout: '#lamp.off' } } },
      },
    },
  });
  expect(drawChart(chart)).toBe(`# lamp

\`\`\`mermaid
stateDiagram-v2
  state on {
    [*] --> dim
    dim --> bright
  }
  [*] --> off
  off --> on : switch.pressed [hasPower] → bright
  on --> off : bright · after timeout
\`\`\`
`);
});

test('`drawChart` lists the events with actions or without a target, once for states with the same transitions', () => {
  const lit = { meta: { detail: 'lit' }, invoke: { id: 'heat', src: 'heat', onError: { actions: 'cool' } } };
  const chart = createMachine({
    id: 'lamp',
    initial: 'end',
    on: { unplugged: { target: '.end', actions: 'cool' } },
    states: {
      end: {
        on: {
          pressed: [
            { guard: 'isNight', target: 'dim' },
            { target: 'bright', actions: 'note' },
          ],
        },
      },
      dim: lit,
      bright: lit,
      broken: { on: { pressed: { actions: 'note' }, pulled: { actions: 'note' }, turned: {} } },
    },
  });
  expect(drawChart(chart)).toBe(`# lamp

\`\`\`mermaid
stateDiagram-v2
  state "end" as lamp_end
  state broken
  [*] --> lamp_end
  lamp_end --> dim : pressed [isNight]
  lamp_end --> bright : pressed
\`\`\`

- \`dim\`: lit; invokes \`heat\`
- \`bright\`: lit; invokes \`heat\`

\`\`\`text
lamp
  unplugged → end / cool
end
  pressed [isNight] → dim
  pressed → bright / note
dim, bright
  heat failed / cool
broken
  pressed, pulled / note
  turned
\`\`\`
`);
});

test('`drawChart` lists invocations and transitions only for the first of two composite states with the same structure', () => {
  const lamp = (name: string) => ({
    initial: 'up',
    states: {
      up: { invoke: { id: name, src: name, onError: { target: 'down', actions: 'note' } } },
      down: { on: { mended: 'up' } },
    },
  });
  const chart = createMachine({ id: 'lamps', type: 'parallel', states: { hall: lamp('hall'), attic: lamp('attic') } });
  expect(drawChart(chart).split('```\n').slice(1).join('')).toBe(`
- \`hall.up\`: invokes \`hall\`

\`\`\`text
hall.up
  hall failed → down / note
`);
});

test('`drawChart` merges arrows between the same states, and draws equal composite states only once', () => {
  const lamp = { initial: 'off', states: { off: { on: { pressed: 'on', pulled: 'on' } }, on: { always: 'off' } } };
  const chart = createMachine({ id: 'lamps', type: 'parallel', states: { hall: lamp, attic: lamp } });
  expect(drawChart(chart).split('```')[1]).toBe(`mermaid
stateDiagram-v2
  state lamps {
    state hall {
      state "off" as lamps_hall_off
      state "on" as lamps_hall_on
      [*] --> lamps_hall_off
      lamps_hall_off --> lamps_hall_on : pressed, pulled
      lamps_hall_on --> lamps_hall_off
    }
    --
    state "attic, inside like hall" as attic
  }
`);
});
