/** The fields that every message of the Stately inspector protocol contains. */
type Stamp = {
  readonly sessionId: string;
  readonly rootId: string;
  /** Milliseconds since 1970, as a decimal string. */
  readonly createdAt: string;
  readonly _version: '0.7.2';
  readonly id: null;
};

/**
 * The snapshot of an actor in the Stately inspector protocol. If the actor has no statechart, only `status`
 * is present.
 */
export type InspectedSnapshot = {
  readonly status: 'active' | 'done' | 'error' | 'stopped';
  readonly value?: unknown;
  readonly context?: Readonly<Record<string, unknown>>;
  readonly tags?: readonly string[];
  readonly children?: Readonly<Record<string, { readonly xstate$$type: 1; readonly id: string }>>;
  readonly historyValue?: Readonly<Record<string, never>>;
};
type InspectedEvent = { readonly type: string; readonly [member: string]: unknown };

/** A message about an actor in the Stately inspector protocol. It contains no secrets. */
export type Inspection =
  | (Stamp & {
      readonly type: '@xstate.actor';
      readonly name: string;
      readonly parentId: string | undefined;
      /** The configuration of the XState machine as JSON text. */
      readonly definition: string;
      readonly snapshot: InspectedSnapshot;
    })
  | (Stamp & { readonly type: '@xstate.event'; readonly sourceId: string | undefined; readonly event: InspectedEvent })
  | (Stamp & {
      readonly type: '@xstate.snapshot';
      readonly event: InspectedEvent;
      readonly snapshot: InspectedSnapshot;
    });

/** A state of a statechart. Other states refer to it by `id`. */
export type ChartState = {
  readonly id: string;
  readonly key: string;
  /** The id of the state around this one; null for the outermost state, which is the chart itself. */
  readonly parent: string | null;
  readonly type: 'atomic' | 'compound' | 'parallel' | 'final' | 'history';
  /** The id of the inner state that is entered by default; null if the state is not `compound`. */
  readonly initial: string | null;
  readonly tags: readonly string[];
  /** The meaning of the state; null if the chart has no text for it. */
  readonly description: string | null;
  /** The ids of the actors that run while the state is active. */
  readonly invokes: readonly string[];
  readonly entry: readonly string[];
  readonly exit: readonly string[];
};

/** A transition of a statechart. Its identity is its position in `ChartDefinition.transitions`. */
export type ChartTransition = {
  /** The id of the state that has the transition. */
  readonly source: string;
  /** The ids of the states that it enters; empty if it only runs actions. */
  readonly targets: readonly string[];
  /** The event type, as XState writes it; null if the transition needs no event. */
  readonly event: string | null;
  readonly guard: string | null;
  readonly actions: readonly string[];
  /**
   * Whether the transition exits and enters its source state again, although its target is inside that state.
   */
  readonly reenter: boolean;
};

/** A statechart as plain data, in the order of its source: an outer state comes before its inner states. */
export type ChartDefinition = {
  readonly id: string;
  readonly states: readonly ChartState[];
  readonly transitions: readonly ChartTransition[];
};

/** A transition that an actor has taken, or several that it took at the same time in parallel regions. */
export type StatechartTransition = {
  readonly type: 'transition';
  /** In ISO 8601, UTC. */
  readonly time: string;
  readonly sessionId: string;
  readonly name: string;
  /** The id of the statechart. */
  readonly chart: string;
  /** The type of the event. A transition that needs no event has the type of the event before it. */
  readonly event: string;
  readonly taken: readonly (Pick<ChartTransition, 'source' | 'targets' | 'event' | 'guard'> & {
    /** The position in `ChartDefinition.transitions`. */
    readonly index: number;
  })[];
  /** The exited states, also those that were entered again; `afterMs`: how long each was active. */
  readonly exited: readonly { readonly state: string; readonly afterMs: number }[];
  readonly entered: readonly string[];
};

/** A running actor with its statechart. Times are in ISO 8601, UTC. */
export type Statechart = {
  readonly name: string;
  readonly sessionId: string;
  readonly parentId: string | null;
  /** The id of the statechart. */
  readonly chart: string;
  /** The configuration of the XState machine as a JSON value. */
  readonly definition: unknown;
  readonly status: InspectedSnapshot['status'];
  readonly value: unknown;
  readonly tags: readonly string[];
  readonly context: Readonly<Record<string, unknown>>;
  /** The time at which the statechart entered its current state. */
  readonly since: string;
  /**
   * The latest events of all actors with this name, oldest first, including those of actors that have ended.
   */
  readonly recent: readonly { readonly time: string; readonly event: string; readonly value: unknown }[];
  /** The latest transitions of these actors, oldest first. */
  readonly transitions: readonly StatechartTransition[];
};

export type Statecharts = {
  charts(): readonly Statechart[];
  /** Returns the definition of each statechart of the node, whether or not an actor runs it. */
  definitions(): readonly ChartDefinition[];
  /**
   * Returns an `@xstate.actor` message with the current snapshot of each running actor. A parent comes
   * before its children.
   */
  actors(): readonly Inspection[];
  /** Returns the latest inspection messages of all actors, the oldest message first. */
  recent(): readonly Inspection[];
  /**
   * Returns the latest transitions of each actor, also of actors that have ended, grouped by actor and oldest
   * first.
   */
  transitions(): readonly StatechartTransition[];
  /**
   * Calls the listener synchronously for each inspection message and each transition from now on, in order. A
   * transition comes before the snapshot that it leads to. Returns a function that removes the listener.
   */
  watch(listener: (seen: Inspection | StatechartTransition) => void): () => void;
};
