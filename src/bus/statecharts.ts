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

/** A running actor with its statechart. Times are in ISO 8601, UTC. */
export type Statechart = {
  readonly name: string;
  readonly sessionId: string;
  readonly parentId: string | null;
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
};

export type Statecharts = {
  charts(): readonly Statechart[];
  /**
   * Returns an `@xstate.actor` message with the current snapshot of each running actor. A parent comes
   * before its children.
   */
  actors(): readonly Inspection[];
  /** Returns the latest inspection messages of all actors, the oldest message first. */
  recent(): readonly Inspection[];
  /**
   * Calls the listener synchronously for each inspection message from now on, in order. Returns a function
   * that removes the listener.
   */
  watch(listener: (inspection: Inspection) => void): () => void;
};
