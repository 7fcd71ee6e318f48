import { BehaviorSubject, Subject } from 'rxjs';
import { describe, expect, it } from 'vitest';
import { type AnyMachineSnapshot, createActor } from 'xstate';
import { integrationsActor } from '#actors/kubernetes/integrations.actor.js';
import type { ReflectorChange, ReflectorPhase } from '#contracts/kubernetes/kubernetes-source.js';
import type { KubernetesContext } from '#statecharts/kubernetes.chart.js';

function start() {
  const reflectors = new Subject<ReflectorChange>();
  const names = new BehaviorSubject<readonly string[]>(['prod']);
  const actor = createActor(integrationsActor({ names, reflectors })).start();
  const of = (integration: string) =>
    (actor.getSnapshot().children as Record<string, typeof actor | undefined>)[integration]?.getSnapshot() as
      | AnyMachineSnapshot
      | undefined;
  const enter = (name: string, phase: ReflectorPhase | null, at: string, reason: string | null = null) =>
    reflectors.next({ integration: 'prod', name, phase, reason, at });
  const context = () => of('prod')?.context as KubernetesContext;
  return { reflectors, names, actor, enter, of, context, state: () => of('prod')?.value };
}

describe('actor of an integration', () => {
  it('the actor of a Kubernetes integration has the worst state of its reflectors, and shows the time when that state began', () => {
    const { actor, enter, context, state } = start();
    expect(state()).toBe('unused');
    enter('pods', 'connecting', 't1');
    enter('nodes', 'connecting', 't2');
    expect([state(), context().since]).toEqual(['connecting', 't1']);
    enter('pods', 'watching', 't3');
    expect([state(), context().since]).toEqual(['connecting', 't1']);
    enter('nodes', 'listing', 't4');
    expect([state(), context().since]).toEqual(['listing', 't4']);
    enter('nodes', 'watching', 't5');
    enter('pods', 'silent', 't6', 'the server sent nothing for 90 s');
    enter('nodes', 'forbidden', 't7', '403: no');
    expect([state(), context().since]).toEqual([{ refused: 'forbidden' }, 't7']);
    enter('nodes', null, 't8');
    expect([state(), context().since]).toEqual(['silent', 't8']);
    enter('pods', null, 't9');
    expect(state()).toBe('unused');
    actor.stop();
  });

  it('the actor of a Kubernetes integration sets `staleSince` when it stops watching, and clears it when it watches again or is unused', () => {
    const { actor, enter, context } = start();
    expect(context().staleSince).toBeNull();
    enter('pods', 'connecting', 't1');
    enter('pods', 'listing', 't2');
    expect(context().staleSince).toBe('t1');
    enter('pods', 'watching', 't3');
    expect(context().staleSince).toBeNull();
    enter('pods', 'backing_off', 't4', 'connection refused');
    enter('pods', 'connecting', 't5');
    enter('nodes', 'watching', 't6');
    expect(context().staleSince).toBe('t4');
    enter('pods', null, 't7');
    expect(context().staleSince).toBeNull();
    enter('nodes', 'silent', 't8');
    enter('nodes', null, 't9');
    expect(context().staleSince).toBeNull();
    actor.stop();
  });

  it('the actor of a Kubernetes integration shows the error of the reflector in the worst state, and no later error of another reflector', () => {
    const { actor, enter, context, state } = start();
    const shown = () => [state(), context().lastError?.reflector, context().lastError?.reason];
    enter('pods', 'watching', 't1');
    enter('nodes', 'forbidden', 't2', '403: nodes is forbidden');
    enter('pods', 'backing_off', 't3', 'connection refused');
    expect(shown()).toEqual([{ refused: 'forbidden' }, 'nodes', '403: nodes is forbidden']);
    enter('nodes', 'watching', 't4');
    expect(shown()).toEqual(['backing_off', 'pods', 'connection refused']);
    enter('nodes', 'forbidden', 't5', '403: nodes is forbidden');
    enter('nodes', null, 't6');
    expect(shown()).toEqual(['backing_off', 'pods', 'connection refused']);
    enter('pods', 'watching', 't7');
    expect(shown()).toEqual(['watching', 'pods', 'connection refused']);
    actor.stop();
  });

  it('the actor of a Kubernetes integration keeps the latest error after the recovery', () => {
    const { actor, reflectors, enter, context, state } = start();
    enter('pods', 'backing_off', 't1', 'connection refused');
    expect(state()).toBe('backing_off');
    enter('pods', 'unauthorized', 't2', '401: Unauthorized');
    enter('pods', 'watching', 't3');
    expect(context().lastError).toEqual({ reflector: 'pods', reason: '401: Unauthorized', at: 't2' });
    actor.stop();
    expect(reflectors.observed).toBe(false);
  });

  it('the actor of a Kubernetes integration exists as long as the integration, and ignores the reflectors of other integrations', () => {
    const { actor, names, reflectors, enter, of } = start();
    enter('pods', 'watching', 't1');
    names.next(['prod', 'test']);
    reflectors.next({ integration: 'test', name: 'pods', phase: 'silent', reason: null, at: 't2' });
    expect([of('prod')?.value, of('test')?.value]).toEqual(['watching', 'silent']);
    names.next(['test']);
    expect([of('prod'), of('test')?.value]).toEqual([undefined, 'silent']);
    actor.stop();
  });
});
