import { assign, fromEventObservable, setup } from 'xstate';
import type { ReflectorPhase } from '#contracts/kubernetes/kubernetes-source.js';
import { notProvided } from './failure.js';

export type KubernetesInput = { readonly name: string };

type ReflectorFailure = { readonly reflector: string; readonly reason: string; readonly at: string };

export type KubernetesContext = KubernetesInput & {
  /** The phase of each reflector, by scope: a reflector lists and watches the objects of one scope. */
  readonly reflectors: Readonly<Record<string, ReflectorPhase>>;
  /**
   * The time when the integration (a Kubernetes API server) entered its present state, in ISO 8601; null
   * before the first event.
   */
  readonly since: string | null;
  /**
   * The time since when the objects in force may be older than the objects on the server; null if they are
   * current.
   */
  readonly staleSince: string | null;
  /**
   * The latest failure of each reflector (list and watch of one resource) since its start. It is kept after
   * the recovery.
   */
  readonly errors: Readonly<Record<string, ReflectorFailure>>;
  /**
   * The failure to show: the latest failure of the reflectors (list and watch of one resource) whose phase is
   * the present state. If there is none, the latest failure of all reflectors.
   */
  readonly lastError: ReflectorFailure | null;
};

/**
 * The watch of the integration (a Kubernetes API server) sends these events. `phase` is null if the reflector
 * has ended.
 */
export type KubernetesEvent = {
  readonly type: 'reflector.changed';
  readonly name: string;
  readonly phase: ReflectorPhase | null;
  readonly reason: string | null;
  readonly at: string;
};

/**
 * From the most to the least severe phase. An integration (a Kubernetes API server) is as healthy as its
 * worst reflector (list and watch of one resource).
 */
const BY_SEVERITY: readonly ReflectorPhase[] = [
  'unauthorized',
  'forbidden',
  'backing_off',
  'silent',
  'connecting',
  'listing',
  'watching',
];

/** The phases of a reflector (list and watch of one resource) that is not failing. */
const WORKING: readonly ReflectorPhase[] = ['connecting', 'listing', 'watching'];

function withoutKey<T>(record: Readonly<Record<string, T>>, key: string): Readonly<Record<string, T>> {
  const { [key]: _, ...others } = record;
  return others;
}

function laterOf(a: ReflectorFailure | null, b: ReflectorFailure): ReflectorFailure {
  return a === null || b.at >= a.at ? b : a;
}

function worstOf({ reflectors }: Pick<KubernetesContext, 'reflectors'>): ReflectorPhase | undefined {
  const phases = new Set(Object.values(reflectors));
  return BY_SEVERITY.find((phase) => phases.has(phase));
}

/**
 * The chart of one Kubernetes integration. The objects of the last complete list stay in force in each state.
 * In `unused`, no reflector runs: no selector names the integration, or the Kubernetes thread is starting.
 */
export const kubernetesChart = setup({
  types: { context: {} as KubernetesContext, input: {} as KubernetesInput, events: {} as KubernetesEvent },
  actors: {
    /** Lists and watches the objects that the selectors need. */
    watch: fromEventObservable<KubernetesEvent, KubernetesInput>(notProvided('watch')),
  },
  actions: {
    noteReflector: assign(({ context }, { name, phase, reason, at }: KubernetesEvent) => {
      const { [name]: _, ...others } = context.reflectors;
      const reflectors = phase === null ? others : { ...others, [name]: phase };
      const worst = worstOf({ reflectors });
      const failed = reason === null ? context.errors : { ...context.errors, [name]: { reflector: name, reason, at } };
      const errors = phase === null ? withoutKey(failed, name) : failed;
      const isFailing = worst !== undefined && !WORKING.includes(worst);
      const failures = Object.values(errors).filter(({ reflector }) => !isFailing || reflectors[reflector] === worst);
      return {
        reflectors,
        since: worst === worstOf(context) ? (context.since ?? at) : at,
        staleSince: worst === undefined || worst === 'watching' ? null : (context.staleSince ?? at),
        errors,
        lastError: failures.reduce<ReflectorFailure | null>(laterOf, null) ?? context.lastError,
      };
    }),
    /** Stops this actor with the error of its child, which can only be a bug. */
    die: (_, { failure }: { failure: unknown }) => {
      throw failure;
    },
  },
  guards: {
    isWorst: ({ context }, { phase }: { phase: ReflectorPhase }) => worstOf(context) === phase,
  },
}).createMachine({
  id: 'kubernetes',
  context: ({ input }) => ({ ...input, reflectors: {}, since: null, staleSince: null, errors: {}, lastError: null }),
  initial: 'unused',
  invoke: {
    id: 'watch',
    src: 'watch',
    input: ({ context }) => context,
    onError: { actions: { type: 'die', params: ({ event }) => ({ failure: event.error }) } },
  },
  on: {
    'reflector.changed': {
      target: '.deciding',
      actions: { type: 'noteReflector', params: ({ event }) => event },
    },
  },
  states: {
    deciding: {
      always: [
        { guard: { type: 'isWorst', params: { phase: 'unauthorized' } }, target: 'refused.unauthorized' },
        { guard: { type: 'isWorst', params: { phase: 'forbidden' } }, target: 'refused.forbidden' },
        { guard: { type: 'isWorst', params: { phase: 'backing_off' } }, target: 'backing_off' },
        { guard: { type: 'isWorst', params: { phase: 'silent' } }, target: 'silent' },
        { guard: { type: 'isWorst', params: { phase: 'connecting' } }, target: 'connecting' },
        { guard: { type: 'isWorst', params: { phase: 'listing' } }, target: 'listing' },
        { guard: { type: 'isWorst', params: { phase: 'watching' } }, target: 'watching' },
        { target: 'unused' },
      ],
    },
    unused: {},
    connecting: {},
    listing: {},
    watching: {},
    silent: {},
    backing_off: {},
    refused: {
      initial: 'unauthorized',
      states: { unauthorized: {}, forbidden: {} },
    },
  },
});
