import type {
  ActorRefLike,
  AnyEventObject,
  AnyMachineSnapshot,
  AnyStateMachine,
  InspectedMicrostepEvent,
  InspectionEvent,
  Snapshot,
} from 'xstate';
import type {
  ChartDefinition,
  InspectedSnapshot,
  Inspection,
  Statechart,
  Statecharts,
  StatechartTransition,
} from '#bus/statecharts.js';
import { chartDefinitionOf } from './chart-definition.js';
import { definitionOf, shownEvent, shownSnapshot } from './shown-snapshot.js';
import { ActiveStates } from './taken-transitions.js';

const KEPT = 2_000;
const KEPT_EVENTS = 100;
const KEPT_TRANSITIONS = 50;
/**
 * The maximum number of actor names whose history is kept. Actor names contain the names of Kubernetes
 * integrations, so their number is not limited otherwise.
 */
const KEPT_NAMES = 200;

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
  /** Undefined if the actor has no statechart. */
  readonly active: ActiveStates | undefined;
  snapshot: InspectedSnapshot;
  state: string;
  since: Date;
};
/** The latest events and transitions of all actors with one name and statechart, oldest first. */
type History = { readonly events: Statechart['recent'][number][]; readonly transitions: StatechartTransition[] };

/**
 * Records the latest state transitions of all actors, and passes each transition to the listeners. It records
 * only the fields that `shown-snapshot.ts` lists, because other fields may contain secrets.
 */
export class ChartRecorder implements Statecharts {
  readonly #running = new Map<string, Running>();
  readonly #recent: Inspection[] = [];
  readonly #histories = new Map<string, History>();
  readonly #listeners = new Set<(seen: Inspection | StatechartTransition) => void>();
  readonly #configurations = new WeakMap<object, string>();
  #definitions: readonly ChartDefinition[] | undefined;

  /** `machines` are the statecharts that `definitions` returns. */
  constructor(
    readonly now: () => Date,
    readonly machines: readonly AnyStateMachine[] = [],
  ) {}

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
      case '@xstate.microstep':
        this.#noteTransition(inspected);
        break;
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
      const { events, transitions } = this.#historyOf(chart, name);
      return {
        name,
        sessionId: actor.sessionId,
        parentId: actor._parent?.sessionId ?? null,
        chart,
        definition: JSON.parse(this.#definitionOf(running)) as unknown,
        status: snapshot.status,
        value: snapshot.value,
        tags: snapshot.tags ?? [],
        context: snapshot.context ?? {},
        since: since.toISOString(),
        recent: [...events],
        transitions: [...transitions],
      };
    });
  }

  definitions(): readonly ChartDefinition[] {
    this.#definitions ??= this.machines.map(chartDefinitionOf);
    return this.#definitions;
  }

  actors(): readonly Inspection[] {
    return [...this.#running.values()].map((running) => this.#introduction(running));
  }

  recent(): readonly Inspection[] {
    return [...this.#recent];
  }

  transitions(): readonly StatechartTransition[] {
    return [...this.#histories.values()].flatMap(({ transitions }) => transitions);
  }

  watch(listener: (seen: Inspection | StatechartTransition) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  #meet(actor: Inspected, rootId: string): Running {
    const known = this.#running.get(actor.sessionId);
    if (known !== undefined) return known;
    const chart = actor.logic?.config?.id;
    const current = actor.getSnapshot() as Snapshot<unknown>;
    const snapshot = shown(chart, current);
    const at = this.now();
    const met: Running = {
      actor,
      rootId,
      chart,
      // The root actor has no name, so use the id of its statechart.
      name: actor.id === actor.sessionId ? (chart ?? actor.id) : actor.id,
      createdAt: at,
      active: chart === undefined ? undefined : new ActiveStates(current as AnyMachineSnapshot, at.getTime()),
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
    const { events } = this.#historyOf(chart, name);
    events.push({ time: at.toISOString(), event: event.type, value: running.snapshot.value });
    if (events.length > KEPT_EVENTS) events.shift();
  }

  /**
   * Records a transition. Ignores an actor that has not started: its first message contains its initial
   * state.
   */
  #noteTransition({ actorRef, event, snapshot, _transitions: transitions }: InspectedMicrostepEvent): void {
    const running = this.#running.get((actorRef as Inspected).sessionId);
    if (running?.chart === undefined || running.active === undefined || transitions.length === 0) return;
    const { chart, name, actor, active } = running;
    const at = this.now();
    const transition: StatechartTransition = {
      type: 'transition',
      time: at.toISOString(),
      sessionId: actor.sessionId,
      name,
      chart,
      event: event.type,
      ...active.take(transitions, snapshot as AnyMachineSnapshot, at.getTime()),
    };
    const kept = this.#historyOf(chart, name).transitions;
    kept.push(transition);
    if (kept.length > KEPT_TRANSITIONS) kept.shift();
    this.#tell(transition);
  }

  #historyOf(chart: string, name: string): History {
    const key = `${chart} ${name}`;
    const known = this.#histories.get(key);
    if (known !== undefined) return known;
    const history: History = { events: [], transitions: [] };
    this.#histories.set(key, history);
    if (this.#histories.size > KEPT_NAMES) this.#forgetOne();
    return history;
  }

  /** Removes the oldest history whose actor name no running actor has. */
  #forgetOne(): void {
    const used = new Set([...this.#running.values()].map(({ chart, name }) => `${chart} ${name}`));
    const unused = [...this.#histories.keys()].find((key) => !used.has(key));
    if (unused !== undefined) this.#histories.delete(unused);
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
    const definition = this.#configurations.get(config) ?? definitionOf(config);
    this.#configurations.set(config, definition);
    return definition;
  }

  #stamp(sessionId: string, rootId: string, at: Date = this.now()) {
    return { sessionId, rootId, createdAt: String(at.getTime()), _version: '0.7.2', id: null } as const;
  }

  #keep(inspection: Inspection): void {
    this.#recent.push(inspection);
    if (this.#recent.length > KEPT) this.#recent.shift();
    this.#tell(inspection);
  }

  #tell(seen: Inspection | StatechartTransition): void {
    for (const listener of this.#listeners) listener(seen);
  }
}

function shown(chart: string | undefined, snapshot: Snapshot<unknown>): InspectedSnapshot {
  return chart === undefined ? { status: snapshot.status } : shownSnapshot(chart, snapshot as AnyMachineSnapshot);
}

function stateOf({ status, value }: InspectedSnapshot): string {
  return JSON.stringify([status, value]);
}
