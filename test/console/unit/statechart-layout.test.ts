import { describe, expect, test } from 'vitest';
import { type Box, layOut } from '../../../console/src/pages/statecharts/layout.js';
import {
  activeIn,
  type Chart,
  chartOf,
  type Definition,
  eventWords,
} from '../../../console/src/pages/statecharts/model.js';
import { type Point, Router } from '../../../console/src/pages/statecharts/routes.js';

// The types of the node are not those of the browser, so they are not checked here.
const [definitionModule, chartsModule]: readonly string[] = [
  '#chart-inspection/chart-definition.js',
  '#statecharts/charts.js',
];
const { chartDefinitionOf } = (await import(definitionModule ?? '')) as {
  chartDefinitionOf: (machine: unknown) => Definition;
};
const { CHARTS } = (await import(chartsModule ?? '')) as { CHARTS: Readonly<Record<string, unknown>> };

/** The room of a chart on a page of 1440 × 900, beside the list of parts and the words. */
const ROOM = { width: 636, height: 746 };
const options = { textWidth: (text: string) => text.length * 7.4, isFolded: () => false };

const charts: readonly Chart[] = Object.values(CHARTS).map((machine) => chartOf(chartDefinitionOf(machine)));
const isLeaf = ({ state }: Box) => state.children.length === 0;
const isInside = ({ x, y }: Point, box: Box, edge: number) =>
  x > box.x + edge && x < box.x + box.width - edge && y > box.y + edge && y < box.y + box.height - edge;

describe.each(charts.map((chart) => [chart.id, chart] as const))('the statechart %s', (_, chart) => {
  const layout = layOut(chart.root, ROOM.width, options);

  test('fits whole on a page of 1440 × 900', () => {
    expect(layout.boxes).toHaveLength(chart.states.size - 1);
    expect(layout.width).toBeLessThanOrEqual(ROOM.width);
    expect(layout.height).toBeLessThanOrEqual(ROOM.height);
  });

  test('has boxes that do not overlap, apart from states in the states around them', () => {
    const leaves = layout.boxes.filter(isLeaf);
    const overlaps = leaves.flatMap((one, at) =>
      leaves
        .slice(at + 1)
        .filter(
          (other) =>
            one.x < other.x + other.width &&
            other.x < one.x + one.width &&
            one.y < other.y + other.height &&
            other.y < one.y + one.height,
        )
        .map((other) => `${one.state.id} ${other.state.id}`),
    );
    expect(overlaps).toEqual([]);
  });

  test('has arrows that end at the border of their target and cross no name', () => {
    const boxes = new Map(layout.boxes.map((box) => [box.state.id, box]));
    const wrong: string[] = [];
    for (const { source, targets } of chart.arrows) {
      const router = new Router(layout);
      for (const target of targets) {
        const [from, to] = [boxes.get(source), boxes.get(target)];
        if (from === undefined || to === undefined || from === to) continue;
        const way = router.route(from, to);
        const end = way?.at(-1);
        if (way === null || end === undefined) {
          wrong.push(`${source} → ${target}: no way`);
          continue;
        }
        if (isInside(end, to, 1)) wrong.push(`${source} → ${target}: ends inside`);
        for (const box of layout.boxes.filter(isLeaf))
          if (pointsOf(way).some((point) => isInside(point, box, 1)))
            wrong.push(`${source} → ${target}: crosses ${box.state.id}`);
      }
    }
    expect(wrong).toEqual([]);
  });
});

/** Points on a way, 2 px apart. */
function pointsOf(way: readonly Point[]): readonly Point[] {
  return way.slice(1).flatMap((to, at) => {
    const from = way[at] ?? to;
    const steps = Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / 2);
    return Array.from({ length: steps }, (_, step) => ({
      x: from.x + ((to.x - from.x) * step) / steps,
      y: from.y + ((to.y - from.y) * step) / steps,
    }));
  });
}

test('the active states of a state value are those on the way to each name in it', () => {
  const node = charts.find(({ id }) => id === 'node');
  const active = node === undefined ? [] : activeIn(node, { phase: { draining: 'releasing' }, policy: 'up' });
  expect(active.map(({ id }) => id)).toEqual([
    'node',
    'node.phase',
    'node.phase.draining',
    'node.phase.draining.releasing',
    'node.policy',
    'node.policy.up',
  ]);
});

test('events of XState are shown as words', () => {
  expect(
    [
      'xstate.done.actor.swap',
      'xstate.error.actor.policy',
      'xstate.after.quietTime.node.policy.up',
      null,
      'dataplane.lost',
    ].map(eventWords),
  ).toEqual(['swap done', 'policy failed', 'after quietTime', 'at once', 'dataplane.lost']);
});
