/** What the Stately inspector puts beside every message of this form. */
type Stamp = {
  readonly sessionId: string;
  readonly rootId: string;
  /** Milliseconds since 1970. */
  readonly createdAt: string;
  readonly _version: '0.7.2';
  readonly id: null;
};

/** An actor that is no chart has a status and nothing else. */
export type InspectedSnapshot = {
  readonly status: 'active' | 'done' | 'error' | 'stopped';
  readonly value?: unknown;
  readonly context?: Readonly<Record<string, unknown>>;
  readonly tags?: readonly string[];
  readonly children?: Readonly<Record<string, { readonly xstate$$type: 1; readonly id: string }>>;
  readonly historyValue?: Readonly<Record<string, never>>;
};
type InspectedEvent = { readonly type: string; readonly [member: string]: unknown };

/** What happened in an actor, as the Stately inspector tells it, without what nobody may see. */
export type Inspection =
  | (Stamp & {
      readonly type: '@xstate.actor';
      readonly name: string;
      readonly parentId: string | undefined;
      /** The machine's configuration, as JSON. */
      readonly definition: string;
      readonly snapshot: InspectedSnapshot;
    })
  | (Stamp & { readonly type: '@xstate.event'; readonly sourceId: string | undefined; readonly event: InspectedEvent })
  | (Stamp & {
      readonly type: '@xstate.snapshot';
      readonly event: InspectedEvent;
      readonly snapshot: InspectedSnapshot;
    });

/** A running actor with its chart. Times are ISO 8601, UTC. */
export type Statechart = {
  readonly name: string;
  readonly sessionId: string;
  readonly parentId: string | null;
  /** The machine's configuration. */
  readonly definition: unknown;
  readonly status: InspectedSnapshot['status'];
  readonly value: unknown;
  readonly tags: readonly string[];
  readonly context: Readonly<Record<string, unknown>>;
  /** When its state was entered. */
  readonly since: string;
  /** The latest, oldest first; those of actors of this name that ended are among them. */
  readonly recent: readonly { readonly time: string; readonly event: string; readonly value: unknown }[];
};

/** What goes on in the actors of the node. */
export type Statecharts = {
  charts(): readonly Statechart[];
  /** An `@xstate.actor` of every actor that runs, parents first, with its snapshot of now. */
  actors(): readonly Inspection[];
  /** The latest of all actors, oldest first. */
  recent(): readonly Inspection[];
  /** Calls back on everything from now on, in its order, while it happens. */
  watch(listener: (inspection: Inspection) => void): () => void;
};
