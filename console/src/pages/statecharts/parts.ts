import { type ReadonlySignal, signal } from '@preact/signals';
import type { Schemas } from '../../api/client.js';

export type Transition = Schemas['StatechartTransition'];

/** A running actor of the node that has a statechart. The page calls it a part of the node. */
export type Part = {
  readonly sessionId: string;
  readonly parentId: string | null;
  readonly name: string;
  /** The `id` of the definition of its statechart. */
  readonly chart: string;
  readonly status: 'active' | 'done' | 'error' | 'stopped';
  readonly value: unknown;
  readonly tags: readonly string[];
  readonly startedAt: number;
  /** The time when the actor ended, in milliseconds since 1970; null while it runs. */
  readonly endedAt: number | null;
};
type Snapshot = Pick<Part, 'status' | 'value'> & { readonly tags?: readonly string[] };
type Introduction = {
  readonly type: '@xstate.actor';
  readonly name: string;
  readonly definition?: string;
  readonly parentId?: string | null;
  readonly snapshot: Snapshot;
  readonly sessionId: string;
  readonly createdAt: string;
};
/** The messages of the stream that this page reads. */
type Message =
  | Introduction
  | { readonly type: '@xstate.snapshot'; readonly snapshot: Snapshot; readonly sessionId: string }
  | { readonly type: 'recent_transitions'; readonly transitions: readonly Transition[] }
  | { readonly type: 'lost'; readonly count: number }
  | Transition
  | { readonly type: '@xstate.event' };

const KEPT_TRANSITIONS = 100;
/** How long an actor stays on the page after its end, in milliseconds. */
const KEPT_ENDED_MS = 60_000;

const historyKey = ({ chart, name }: { readonly chart: string; readonly name: string }) => `${chart} ${name}`;

/**
 * Collects the actors of the node and their latest transitions from the stream. A message changes only this
 * object; the page renders it at most once per frame.
 */
export class Parts {
  readonly #parts = new Map<string, Part>();
  readonly #histories = new Map<string, Transition[]>();
  readonly #changes = signal(0);
  /** The actors that the node has not sent again since the stream began or lost messages. */
  #unseen: Set<string> | null = null;
  #frame = 0;

  /** A counter that increases with each change that the page renders. */
  get changes(): ReadonlySignal<number> {
    return this.#changes;
  }

  /** All actors, parents before their children. */
  get all(): readonly Part[] {
    return [...this.#parts.values()];
  }

  /**
   * Returns the latest transitions of all actors with the name and the statechart of `part`, the oldest
   * first.
   */
  transitionsOf(part: Part): readonly Transition[] {
    return this.#histories.get(historyKey(part)) ?? [];
  }

  readonly receive = (received: unknown, isFirst: boolean): void => {
    const message = received as Message;
    if (isFirst || message.type === 'lost') this.#unseen = new Set(this.#parts.keys());
    if (message.type === '@xstate.actor') {
      this.#unseen?.delete(message.sessionId);
      this.#introduce(message);
    } else {
      for (const gone of this.#unseen ?? []) this.#parts.delete(gone);
      if (message.type !== 'lost') this.#unseen = null;
      this.#handle(message);
    }
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#changes.value++;
    });
  };

  #handle(message: Exclude<Message, Introduction>): void {
    if (message.type === 'recent_transitions') {
      this.#histories.clear();
      for (const transition of message.transitions) this.#note(transition);
    } else if (message.type === 'transition') this.#note(message);
    else if (message.type === '@xstate.snapshot') {
      const part = this.#parts.get(message.sessionId);
      if (part !== undefined) this.#show(part, message.snapshot);
    }
  }

  #introduce({ name, definition, parentId = null, snapshot, sessionId, createdAt }: Introduction): void {
    const machine =
      definition === undefined ? null : (JSON.parse(definition) as { id?: string; states?: object } | null);
    if (machine?.id === undefined || machine.states === undefined) return;
    for (const [id, other] of this.#parts)
      if (other.endedAt !== null && (other.name === name || Date.now() - other.endedAt > KEPT_ENDED_MS))
        this.#parts.delete(id);
    const part: Part = {
      ...{ sessionId, parentId, name, chart: machine.id, startedAt: Number(createdAt) },
      ...{ status: 'active', value: {}, tags: [], endedAt: null },
    };
    this.#show(part, snapshot);
  }

  #show(part: Part, { status, value, tags = [] }: Snapshot): void {
    this.#parts.set(part.sessionId, {
      ...part,
      ...{ status, tags },
      // Keep the last state value of an actor that has ended.
      value: value ?? part.value,
      endedAt: status === 'active' ? null : (part.endedAt ?? Date.now()),
    });
  }

  #note(transition: Transition): void {
    const key = historyKey(transition);
    const history = this.#histories.get(key) ?? [];
    history.push(transition);
    if (history.length > KEPT_TRANSITIONS) history.shift();
    this.#histories.set(key, history);
  }
}
