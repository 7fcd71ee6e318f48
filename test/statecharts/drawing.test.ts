import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { createMachine } from 'xstate';
import { CHARTS } from '#statecharts/charts.js';
import { drawChart } from '#statecharts/drawing.js';
import { WALKS } from './walks.js';

const folder = new URL('../../docs/statecharts/', import.meta.url);

for (const [name, chart] of Object.entries(CHARTS)) {
  test(`docs/statecharts/${name}.md equals the page that drawChart returns (update: npm run charts)`, () => {
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

test('drawChart draws parallel regions side by side inside the chart', () => {
  const chart = createMachine({
    id: 'lamp',
    type: 'parallel',
    states: { power: { initial: 'off', states: { off: {} } }, hue: { initial: 'warm', states: { warm: {} } } },
  });
  expect(drawChart(chart).split('```')[1]).toBe(`mermaid
stateDiagram-v2
  state "lamp" as lamp {
    state "power" as lamp_power {
      state "off" as lamp_power_off
      [*] --> lamp_power_off
    }
    --
    state "hue" as lamp_hue {
      state "warm" as lamp_hue_warm
      [*] --> lamp_hue_warm
    }
  }
`);
});

test('drawChart draws an arrow between composite states if a transition connects their inner states', () => {
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
  state "off" as lamp_off
  state "on" as lamp_on {
    state "dim" as lamp_on_dim
    state "bright" as lamp_on_bright
    [*] --> lamp_on_dim
    lamp_on_dim --> lamp_on_bright
  }
  [*] --> lamp_off
  lamp_off --> lamp_on : switch.pressed [hasPower] → bright
  lamp_on --> lamp_off : bright · after timeout
\`\`\`

| state | readiness tag | detail | invokes |
|---|---|---|---|
| \`off\` |  |  |  |
| \`on\` |  |  |  |
| \`on.dim\` |  |  |  |
| \`on.bright\` |  |  |  |

| from | event | guard | to | actions |
|---|---|---|---|---|
| \`off\` | switch.pressed | hasPower | \`on.bright\` |  |
| \`on.dim\` | always |  | \`on.bright\` |  |
| \`on.bright\` | after timeout |  | \`off\` |  |
`);
});

test('drawChart merges arrows between the same states, and draws equal composite states only once', () => {
  const lamp = { initial: 'off', states: { off: { on: { pressed: 'on', pulled: 'on' } }, on: { always: 'off' } } };
  const chart = createMachine({ id: 'lamps', type: 'parallel', states: { hall: lamp, attic: lamp } });
  expect(drawChart(chart).split('```')[1]).toBe(`mermaid
stateDiagram-v2
  state "lamps" as lamps {
    state "hall" as lamps_hall {
      state "off" as lamps_hall_off
      state "on" as lamps_hall_on
      [*] --> lamps_hall_off
      lamps_hall_off --> lamps_hall_on : pressed, pulled
      lamps_hall_on --> lamps_hall_off
    }
    --
    state "attic, inside like hall" as lamps_attic
  }
`);
});
