import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

/** Functions that create metric families in one registry of `prom-client`. */
export type Families = ReturnType<typeof familiesOf>;

export function familiesOf(registry: Registry) {
  const registers = [registry];
  return {
    gauge: <L extends string>(name: string, help: string, ...labelNames: L[]) =>
      new Gauge<L>({ name, help, labelNames, registers }),
    counter: <L extends string>(name: string, help: string, ...labelNames: L[]) =>
      new Counter<L>({ name, help, labelNames, registers }),
    /** Creates a histogram; `buckets` are upper bounds in seconds. */
    histogram: <L extends string>(name: string, help: string, buckets: number[], ...labelNames: L[]) =>
      new Histogram<L>({ name, help, buckets, labelNames, registers }),
  };
}
