import type { Observable } from 'rxjs';
import { fromEventObservable } from 'xstate';
import { type KubernetesEvent, kubernetesChart } from '#statecharts/kubernetes.chart.js';

/** Binds the chart of an integration to the events of its watch. An error of `events` is a bug. */
export function kubernetesActor(events: Observable<KubernetesEvent>) {
  return kubernetesChart.provide({ actors: { watch: fromEventObservable(() => events) } });
}
