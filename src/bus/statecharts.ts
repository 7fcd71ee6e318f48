/** Fields that the Stately inspector protocol puts into every message. */
type Stamp = {
  readonly sessionId: string;
  readonly rootId: string;
  /** Milliseconds since 1970. */
  readonly createdAt: string;
  readonly _version: '0.7.2';
  readonly id: null;
};

/** The snapshot of an actor without a statechart: a status and nothing else. */
export type InspectedSnapshot = {
  readonly status: 'active' | 'done' | 'error' | 'stopped';
  readonly value?: unknown;
  readonly context?: Readonly<Record<string, unknown>>;
  readonly tags?: readonly string[];
  readonly children?: Readonly<Record<string, { readonly xstate$$type: 1; readonly id: string }>>;
  readonly historyValue?: Readonly<Record<string, never>>;
};
type InspectedEvent = { readonly type: string; readonly [member: string]: unknown };

/** An event of an actor in the protocol of the Stately inspector, without secrets. */
export type Inspection =
  | (Stamp & {
      readonly type: '@xstate.actor';
      readonly name: string;
      readonly parentId: string | undefined;
      /** The configuration of the machine, as JSON. */
      readonly definition: string;
      readonly snapshot: InspectedSnapshot;
    })
  | (Stamp & { readonly type: '@xstate.event'; readonly sourceId: string | undefined; readonly event: InspectedEvent })
  | (Stamp & {
      readonly type: '@xstate.snapshot';
      readonly event: InspectedEvent;
      readonly snapshot: InspectedSnapshot;
    });

/** A running actor with its statechart. Times are ISO 8601, UTC. */
export type Statechart = {
  readonly name: string;
  readonly sessionId: string;
  readonly parentId: string | null;
  /** The configuration of the machine. */
  readonly definition: unknown;
  readonly status: InspectedSnapshot['status'];
  readonly value: unknown;
  readonly tags: readonly string[];
  readonly context: Readonly<Record<string, unknown>>;
  /** When the current state was entered. */
  readonly since: string;
  /** The latest events, oldest first, including those of ended actors with this name. */
  readonly recent: readonly { readonly time: string; readonly event: string; readonly value: unknown }[];
};

/** The inspection of the node's actors. */
export type Statecharts = {
  charts(): readonly Statechart[];
  /** An `@xstate.actor` message with a current snapshot for every running actor, parents first. */
  actors(): readonly Inspection[];
  /** The latest messages of all actors, oldest first. */
  recent(): readonly Inspection[];
  /**
   * Calls the listener for every later message, in order and synchronously. Returns a function that stops
   * this.
   */
  watch(listener: (inspection: Inspection) => void): () => void;
};
