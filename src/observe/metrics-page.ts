import type { MetricFamily } from './metrics.js';

const INTRODUCTION = `# Metrics

Written by \`npm run docs\` from the registry; a test holds this page equal to it.

\`GET /metrics\` answers in the text format of Prometheus, and needs no token. Counters begin at 0 when the process starts,
but those of packets, bytes, drops and flows, which the kernel keeps over a restart. What the kernel counts is read for
each scrape; while it cannot be read, its families are left out and \`weir_stats_up\` is 0. Families of parts that do not run have no samples. No
label holds an address, a hostname or the id of a rule.

A dashboard for Grafana is in [\`deploy/grafana/weir.json\`](../deploy/grafana/weir.json), and alerts are in
[\`deploy/prometheus/alerts.yaml\`](../deploy/prometheus/alerts.yaml).
`;

const OF_PROCESS = /^weir_(process|nodejs)_/;

/** Returns the text of `docs/metrics.md`. */
export function metricsPage(families: readonly MetricFamily[]): string {
  const own = families.filter(({ name }) => !OF_PROCESS.test(name));
  const ofProcess = families.filter(({ name }) => OF_PROCESS.test(name));
  return [INTRODUCTION, ...section('Of the node', own), ...section('Of its process', ofProcess)].join('\n');
}

function section(title: string, families: readonly MetricFamily[]): string[] {
  const rows = families.map(({ name, type, labels, help }) => {
    const named = labels.map((label) => `\`${label}\``).join(', ');
    return `| \`${name}\` | ${type} | ${named} | ${help.replaceAll('|', '\\|')} |`;
  });
  return [`## ${title}`, '', '| metric | type | labels | |', '|---|---|---|---|', ...rows, ''];
}
