import { filter, map, type Observable } from 'rxjs';
import { type EventObject, fromCallback, fromEventObservable } from 'xstate';
import type { ReflectorChange } from '#contracts/kubernetes/kubernetes-source.js';
import { integrationsChart } from '#statecharts/integrations.chart.js';
import { type KubernetesEvent, type KubernetesInput, kubernetesChart } from '#statecharts/kubernetes.chart.js';

export type IntegrationsPorts = {
  /** Emits the names of all integrations, at the subscription and after each change. */
  readonly names: Observable<readonly string[]>;
  readonly reflectors: Observable<ReflectorChange>;
};

export function integrationsActor({ names, reflectors }: IntegrationsPorts) {
  const watch = fromEventObservable<KubernetesEvent, KubernetesInput>(({ input }) =>
    reflectors.pipe(
      filter(({ integration }) => integration === input.name),
      map(({ integration: _, ...change }) => ({ type: 'reflector.changed', ...change })),
    ),
  );
  return integrationsChart.provide({
    actors: {
      follow: fromCallback<EventObject>(({ sendBack }) => {
        const following = names.subscribe((all) => sendBack({ type: 'integrations.changed', names: all }));
        return () => following.unsubscribe();
      }),
      integration: kubernetesChart.provide({ actors: { watch } }),
    },
  });
}
