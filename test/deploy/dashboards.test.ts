import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { metricsOfEveryPart } from '#test/observe/every-part.js';
import { readQuery } from './promql.js';

type Panel = {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly datasource?: { readonly uid: string };
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
};
type Alert = {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<string, string>>;
};

const file = (path: string) => readFile(new URL(`../../deploy/${path}`, import.meta.url), 'utf8');
const dashboard = JSON.parse(await file('grafana/weir.json')) as {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly type: string }[] };
};
const alerts = (parse(await file('prometheus/alerts.yaml')) as { groups: { rules: Alert[] }[] }).groups.flatMap(
  ({ rules }) => rules,
);

const VARIABLE = 'datasource';

/** Labels that Prometheus itself adds to every series. */
const OF_PROMETHEUS = ['instance', 'job'];
const FUNCTIONS = ['absent', 'histogram_quantile', 'increase', 'max', 'rate', 'sum'];

/**
 * Maps each metric name of a scrape to its label names, and each label name to the values that the scrape
 * contains.
 */
async function seriesOfScrape() {
  const metrics = metricsOfEveryPart();
  const series = new Map<string, Map<string, Set<string>>>();
  const labelsOf = (name: string) => {
    const labels = series.get(name) ?? new Map<string, Set<string>>();
    series.set(name, labels);
    return labels;
  };
  for (const { name, type, labels } of metrics.families()) {
    const names = type === 'histogram' ? ['_bucket', '_sum', '_count'].map((suffix) => name + suffix) : [name];
    for (const one of names) for (const label of labels) labelsOf(one).set(label, new Set());
    for (const one of names) labelsOf(one);
  }
  for (const line of (await metrics.scrape()).split('\n')) {
    const [, name = '', text = ''] = /^(weir_\w+)(?:\{(.*)\})? /.exec(line) ?? [];
    if (name === '') continue;
    const labels = labelsOf(name);
    for (const [, label = '', value = ''] of text.matchAll(/(\w+)="([^"]*)"/g))
      labels.set(label, (labels.get(label) ?? new Set()).add(value));
  }
  series.set('up', new Map([['job', new Set(['weir'])]]));
  return series;
}
const series = await seriesOfScrape();

/**
 * Returns the metrics, labels and label values that the PromQL expression reads and no scrape contains. Also
 * returns each function of the expression that is not in `FUNCTIONS`.
 */
function unknownIn(expression: string): string[] {
  const { selectors, functions, groupings } = readQuery(expression);
  const known = new Set([
    ...OF_PROMETHEUS,
    ...selectors.flatMap(({ metric }) => [...(series.get(metric)?.keys() ?? [])]),
  ]);
  return [
    ...functions.filter((name) => !FUNCTIONS.includes(name)),
    ...groupings.filter((label) => !known.has(label)),
    ...selectors.flatMap(({ metric, matchers }) => {
      const labels = series.get(metric);
      if (labels === undefined) return [metric];
      return matchers.flatMap(({ label, operator, value }) => {
        if (OF_PROMETHEUS.includes(label) && !labels.has(label)) return [];
        const values = labels.get(label);
        if (values === undefined) return [`${metric}{${label}}`];
        const wanted = operator.endsWith('~') ? value.split('|') : [value];
        return wanted.filter((one) => !values.has(one)).map((one) => `${metric}{${label}="${one}"}`);
      });
    }),
  ];
}

const queries = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => [title, expr] as const),
);

describe('Grafana dashboard', () => {
  it.each(queries)(
    'panel "%s" of the Grafana dashboard queries only metrics and labels that a scrape of Weir contains (query: %s)',
    (_, expression) => {
      expect(unknownIn(expression.replaceAll('$__rate_interval', '5m'))).toEqual([]);
    },
  );

  it('the Grafana dashboard uses in each legend only labels that the result of the query keeps', () => {
    const wrong = dashboard.panels.flatMap(({ title, targets = [] }) =>
      targets.flatMap(({ expr, legendFormat }) => {
        const { groupings, selectors } = readQuery(expr.replaceAll('$__rate_interval', '5m'));
        const own = selectors.flatMap(({ metric }) => [...(series.get(metric)?.keys() ?? [])]);
        const kept = /^(sum|max|histogram_quantile)\b/.test(expr) ? groupings : [...OF_PROMETHEUS, ...own];
        const named = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
        return named.filter((label) => !kept.includes(label)).map((label) => `${title}: ${label}`);
      }),
    );
    expect(wrong).toEqual([]);
  });

  it('the Grafana dashboard has the nine expected rows, and panels that have a description and do not overlap', () => {
    const rows = dashboard.panels.filter(({ type }) => type === 'row').map(({ title }) => title);
    expect(rows).toEqual([
      'Readiness',
      'Policy',
      'Packets',
      'Source groups',
      'Flows and tables',
      'Events, wiretap and findings',
      'DNS',
      'TLS and HTTP',
      'Process and API',
    ]);
    const panels = dashboard.panels.filter(({ type }) => type !== 'row');
    expect(panels.filter(({ description = '', targets = [] }) => description === '' || targets.length === 0)).toEqual(
      [],
    );
    expect(panels.filter(({ datasource }) => datasource?.uid !== `\${${VARIABLE}}`)).toEqual([]);
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)}:${y + Math.floor(cell / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    expect(dashboard.templating.list.map(({ name, type }) => [name, type])).toEqual([
      [VARIABLE, 'datasource'],
      ['instance', 'query'],
    ]);
  });
});

describe('Prometheus alerts', () => {
  it.each(alerts.map(({ alert, expr }) => [alert, expr]))(
    'the Prometheus alert %s queries only metrics and labels that a scrape of Weir contains (query: %s)',
    (_, expression) => {
      expect(unknownIn(expression)).toEqual([]);
    },
  );

  it('each Prometheus alert has a non-empty summary, description and action, and the severity critical, warning or info', () => {
    for (const { labels, annotations } of alerts) {
      expect(Object.keys(annotations)).toEqual(['summary', 'description', 'action']);
      expect(Object.values(annotations).filter((text) => text.trim() === '')).toEqual([]);
      expect(['critical', 'warning', 'info']).toContain(labels.severity);
    }
    expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
  });

  it('a Prometheus alert exists for each metric of a cluster that reports a fault of etcd', () => {
    const read = new Set(alerts.flatMap(({ expr }) => readQuery(expr).selectors.map(({ metric }) => metric)));
    const faults = ['contradicted', 'etcd_full', 'unreadable_values'].map((name) => `weir_cluster_${name}`);
    expect(faults.filter((name) => !read.has(name) || !series.has(name))).toEqual([]);
  });

  it('the texts of Prometheus alerts use only labels that the result of the alert expression keeps', () => {
    const wrong = alerts.flatMap(({ alert, expr, annotations }) => {
      const { groupings, selectors } = readQuery(expr);
      const own = selectors.flatMap(({ metric }) => [...(series.get(metric)?.keys() ?? [])]);
      const kept = groupings.length > 0 ? groupings : [...OF_PROMETHEUS, ...own];
      const named = Object.values(annotations).flatMap((text) => [...text.matchAll(/\$labels\.(\w+)/g)]);
      return named.flatMap(([, label = '']) => (kept.includes(label) ? [] : [`${alert}: ${label}`]));
    });
    expect(wrong).toEqual([]);
  });
});

describe('PromQL parser of the dashboard tests', () => {
  it('the PromQL parser of the dashboard tests returns the selectors, functions and grouping labels of an expression', () => {
    const text = 'histogram_quantile(0.9, sum by (le, a) (rate(x_bucket{b=~"c|d", e!="f"}[5m]))) > 0 or y / on(g) z';
    expect(readQuery(text)).toEqual({
      selectors: [
        {
          metric: 'x_bucket',
          matchers: [
            { label: 'b', operator: '=~', value: 'c|d' },
            { label: 'e', operator: '!=', value: 'f' },
          ],
        },
        { metric: 'y', matchers: [] },
        { metric: 'z', matchers: [] },
      ],
      functions: ['histogram_quantile', 'sum', 'rate'],
      groupings: ['le', 'a', 'g'],
    });
  });

  it.each(['sum(x', 'x{a="b"', 'x{a=b}', 'x]', 'x & y'])(
    'the PromQL parser of the dashboard tests throws a SyntaxError for the malformed expression %s',
    (text) => {
      expect(() => readQuery(text)).toThrow(SyntaxError);
    },
  );

  it.each([
    ['weir_nothing', ['weir_nothing']],
    ['weir_ready{check="x"}', ['weir_ready{check}']],
    ['weir_events_lost_total{where="rign"}', ['weir_events_lost_total{where="rign"}']],
    ['sum by (nothing) (weir_ready)', ['nothing']],
    ['rat(weir_ready)', ['rat']],
  ])(
    '`unknownIn` of the dashboard tests returns the unknown metric, label, value or function of the expression %s',
    (expression, unknown) => {
      expect(unknownIn(expression)).toEqual(unknown);
    },
  );
});
