import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import '../style/chart.css';
import { api, bodyOf, type Schemas } from '../api/client.js';
import { usePolled } from '../api/polled.js';
import { clockTime, short } from '../format.js';
import { Failure, Panel } from '../ui/parts.js';

type Series = Schemas['StatsSeries'];
type Counts = Series['dataplane']['packets']['allow'];

const HEIGHT = 190;
/** The shortest period that the chart shows, in seconds. */
const SHORTEST_S = 600;
/** The distances between two times on the axis, in seconds. */
const MINUTES = [1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60);
const LINES = [
  { name: 'allowed', key: 'allow', color: '--allow', dash: [] },
  { name: 'denied', key: 'deny', color: '--deny', dash: [6, 3] },
  { name: 'would be denied', key: 'audit', color: '--audit', dash: [2, 3] },
] as const;

/** A chart of the packets per second in the last hour. The line has a gap where the node measured nothing. */
export function OverviewChart() {
  const series = usePolled((signal) => bodyOf(api.GET('/api/v1/stats/series', { signal })), 10_000);
  const data = series.data.value;
  return (
    <Panel title="Packets a second in the last hour" class="chart-panel">
      <Failure failure={series.failure.value} />
      {data === null ? <div class="chart-space" aria-busy="true" /> : <Plot series={data} />}
    </Panel>
  );
}

const rates = (counts: Counts, { step_seconds: seconds }: Series) =>
  counts.map((count) => (count === null ? null : count / seconds));

function Plot({ series }: { readonly series: Series }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const values = (): uPlot.AlignedData => {
    const { from, step_seconds: step, dataplane } = series;
    const start = new Date(from).getTime() / 1_000;
    return [
      dataplane.packets.allow.map((_, at) => start + at * step),
      ...LINES.map(({ key }) => rates(dataplane.packets[key], series)),
    ];
  };
  useEffect(() => {
    const root = place.current;
    if (root === null) return;
    const color = (name: string) => () => getComputedStyle(root).getPropertyValue(name);
    const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: root.clientWidth,
        height: HEIGHT,
        padding: [8, 20, 0, 0],
        scales: {
          x: { range: (plot, from, until) => [Math.max(from, Math.min(firstKnown(plot), until - SHORTEST_S)), until] },
          y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] },
        },
        axes: [
          { ...axis, incrs: MINUTES, values: (_, splits) => splits.map((at) => clockTime(at * 1_000).slice(0, 5)) },
          { ...axis, size: 56, values: (_, splits) => splits.map(short) },
        ],
        series: [
          { label: 'at', value: (_, at, __, index) => (index === null ? 'now' : clockTime(at * 1_000)) },
          ...LINES.map(({ name, color: stroke, dash }) => ({
            label: name,
            stroke: color(stroke),
            width: 1.5,
            dash: [...dash],
            points: { show: false },
            // While the pointer is not on the chart, the legend shows the latest values.
            value: (plot: uPlot, value: number | null, line: number, index: number | null) =>
              (index === null ? latest(plot, line) : value)?.toFixed(1) ?? '',
          })),
        ],
      },
      values(),
      root,
    );
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: root.clientWidth, height: HEIGHT }));
    resized.observe(root);
    // The colors of the lines follow the theme.
    const themed = new MutationObserver(() => made.redraw());
    themed.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const redraw = () => made.redraw();
    dark.addEventListener('change', redraw);
    return () => {
      resized.disconnect();
      themed.disconnect();
      dark.removeEventListener('change', redraw);
      made.destroy();
    };
  }, []);
  useEffect(() => {
    plot.current?.setData(values());
  }, [series]);
  return (
    <figure class="chart-figure">
      <div ref={place} class="chart-space" aria-hidden="true" />
      <figcaption class="visually-hidden">{summaryOf(series)}</figcaption>
    </figure>
  );
}

const latest = (plot: uPlot, line: number) => [...(plot.data[line] ?? [])].findLast((rate) => rate != null);

/** The time of the first value, in seconds since 1970. */
function firstKnown(plot: uPlot): number {
  const [times, ...lines] = plot.data;
  const first = times.findIndex((_, at) => lines.some((line) => line[at] != null));
  return times[first] ?? Number.POSITIVE_INFINITY;
}

/** Returns a sentence that describes the chart to screen readers. */
function summaryOf(series: Series): string {
  const parts = LINES.map(({ name, key }) => {
    const known = rates(series.dataplane.packets[key], series).filter((rate) => rate !== null);
    return `${name}: now ${(known.at(-1) ?? 0).toFixed(1)}, at most ${Math.max(0, ...known).toFixed(1)}`;
  });
  return `Packets a second in the last hour. ${parts.join('; ')}.`;
}
