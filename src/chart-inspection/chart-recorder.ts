import type { ActorRefLike, AnyEventObject, AnyMachineSnapshot, InspectionEvent, Snapshot } from 'xstate';
import type { InspectedSnapshot, Inspection, Statechart, Statecharts } from '#bus/statecharts.js';
import { definitionOf, shownEvent, shownSnapshot } from './shown-snapshot.js';

const KEPT = 2_000;
const KEPT_OF_A_CHART = 100;

/** An actor as XState passes it to an inspector. This type adds fields that `ActorRefLike` omits. */
type Inspected = ActorRefLike & {
  readonly id: string;
  readonly _parent?: { readonly sessionId: string };
  readonly logic?: { readonly config?: { readonly id?: string } };
};
type Running = {
  readonly actor: Inspected;
  readonly rootId: string;
  readonly name: string;
  readonly createdAt: Date;
  /** The id of the actor's statechart; undefined if the actor has no statechart. */
  readonly chart: string | undefined;
  snapshot: InspectedSnapshot;
  state: string;
  since: Date;
};

/**
 * Records the latest state transitions of all actors, and passes each transition to the listeners. It records
 * only the fields that `shown-snapshot.ts` lists, because other fields may contain secrets.
 */
export class ChartRecorder implements Statecharts {
  readonly #running = new Map<string, Running>();
  readonly #recent: Inspection[] = [];
  readonly #ofChart = new Map<string, Statechart['recent'][number][]>();
  readonly #listeners = new Set<(inspection: Inspection) => void>();
  readonly #definitions = new WeakMap<object, string>();

  constructor(readonly now: () => Date) {}

  /** The callback for the `inspect` option of the root actor in XState. */
  inspect(inspected: InspectionEvent): void {
    const actor = inspected.actorRef as Inspected;
    switch (inspected.type) {
      case '@xstate.event': {
        // Record the actor at its first event, because it has no state yet at the earlier event
        // `@xstate.actor`.
        this.#meet(actor, inspected.rootId);
        const { event, sourceRef, rootId } = inspected;
        this.#noteDeath(sourceRef as Inspected | undefined, event);
        this.#keep({
          type: '@xstate.event',
          event: shownEvent(event),
          sourceId: sourceRef?.sessionId,
          ...this.#stamp(actor.sessionId, rootId),
        });
        break;
      }
      case '@xstate.snapshot':
        // Ignore the snapshot of a failed actor. XState notifies the parent of the actor first, and
        // `#noteDeath` has then already recorded the failure.
        if (this.#running.has(actor.sessionId) || inspected.snapshot.status === 'active')
          this.#noteSnapshot(this.#meet(actor, inspected.rootId), inspected.event, inspected.snapshot);
        break;
      default:
    }
  }

  charts(): readonly Statechart[] {
    return [...this.#running.values()].flatMap((running) => {
      const { actor, chart, name, snapshot, since } = running;
      if (chart === undefined) return [];
      return {
        name,
        sessionId: actor.sessionId,
        parentId: actor._parent?.sessionId ?? null,
        definition: JSON.parse(this.#definitionOf(running)) as unknown,
        status: snapshot.status,
        value: snapshot.value,
        tags: snapshot.tags ?? [],
        context: snapshot.context ?? {},
        since: since.toISOString(),
        recent: [...(this.#ofChart.get(name) ?? [])],
      };
    });
  }

  actors(): readonly Inspection[] {
    return [...this.#running.values()].map((running) => this.#introduction(running));
  }

  recent(): readonly Inspection[] {
    return [...this.#recent];
  }

  watch(listener: (inspection: Inspection) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  #meet(actor: Inspected, rootId: string): Running {
    const known = this.#running.get(actor.sessionId);
    if (known !== undefined) return known;
    const chart = actor.logic?.config?.id;
    const snapshot = shown(chart, actor.getSnapshot() as Snapshot<unknown>);
    const at = this.now();
    const met: Running = {
      actor,
      rootId,
      chart,
      // The root actor has no name, so use the id of its statechart.
      name: actor.id === actor.sessionId ? (chart ?? actor.id) : actor.id,
      createdAt: at,
      snapshot,
      state: stateOf(snapshot),
      since: at,
    };
    this.#running.set(actor.sessionId, met);
    this.#keep(this.#introduction(met));
    return met;
  }

  #noteSnapshot(running: Running, event: AnyEventObject, snapshot: Snapshot<unknown>): void {
    const { actor, chart, name, rootId } = running;
    const at = this.now();
    this.#enter(running, shown(chart, snapshot), at);
    if (running.snapshot.status !== 'active') this.#running.delete(actor.sessionId);
    const stamp = this.#stamp(actor.sessionId, rootId, at);
    this.#keep({ type: '@xstate.snapshot', event: shownEvent(event), snapshot: running.snapshot, ...stamp });
    if (chart === undefined) return;
    const ofChart = this.#ofChart.get(name) ?? [];
    this.#ofChart.set(name, ofChart);
    ofChart.push({ time: at.toISOString(), event: event.type, value: running.snapshot.value });
    if (ofChart.length > KEPT_OF_A_CHART) ofChart.shift();
  }

  /**
   * Records the failure of an actor from the event that its parent receives. An actor that throws emits no
   * snapshot of its own.
   */
  #noteDeath(actor: Inspected | undefined, event: AnyEventObject): void {
    const dead = actor === undefined ? undefined : this.#running.get(actor.sessionId);
    if (actor === undefined || dead === undefined || event.type !== `xstate.error.actor.${actor.id}`) return;
    this.#running.delete(actor.sessionId);
    const snapshot = { ...dead.snapshot, status: 'error' as const };
    const stamp = this.#stamp(actor.sessionId, dead.rootId);
    this.#keep({ type: '@xstate.snapshot', event: shownEvent(event), snapshot, ...stamp });
  }

  #enter(running: Running, snapshot: InspectedSnapshot, at: Date): void {
    running.snapshot = snapshot;
    const state = stateOf(snapshot);
    if (state === running.state) return;
    running.state = state;
    running.since = at;
  }

  #introduction(running: Running): Inspection {
    const { actor, name, rootId, snapshot, createdAt } = running;
    return {
      type: '@xstate.actor',
      name,
      definition: this.#definitionOf(running),
      parentId: actor._parent?.sessionId,
      snapshot,
      ...this.#stamp(actor.sessionId, rootId, createdAt),
    };
  }

  #definitionOf({ actor, name }: Running): string {
    const config = actor.logic?.config;
    if (config === undefined) return JSON.stringify({ id: name });
    const definition = this.#definitions.get(config) ?? definitionOf(config);
    this.#definitions.set(config, definition);
    return definition;
  }

  #stamp(sessionId: string, rootId: string, at: Date = this.now()) {
    return { sessionId, rootId, createdAt: String(at.getTime()), _version: '0.7.2', id: null } as const;
  }

  #keep(inspection: Inspection): void {
    this.#recent.push(inspection);
    if (this.#recent.length > KEPT) this.#recent.shift();
    for (const listener of this.#listeners) listener(inspection);
  }
}

function shown(chart: string | undefined, snapshot: Snapshot<unknown>): InspectedSnapshot {
  return chart === undefined ? { status: snapshot.status } : shownSnapshot(chart, snapshot as AnyMachineSnapshot);
}

function stateOf({ status, value }: InspectedSnapshot): string {
  return JSON.stringify([status, value]);
}
