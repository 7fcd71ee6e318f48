/**
 * The requests that a thread serves: a function type for each name. Arguments and results are cloned or
 * transferred.
 */
export type Asks<A> = Readonly<Record<keyof A, (...asked: never[]) => unknown>>;
export type Asked<A extends Asks<A>, What extends keyof A> = Parameters<A[What]>;
export type Answer<A extends Asks<A>, What extends keyof A> = Awaited<ReturnType<A[What]>>;

export type AskMessage = {
  readonly kind: 'ask';
  readonly id: number;
  readonly what: PropertyKey;
  readonly asked: readonly unknown[];
};
export type AnswerMessage =
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly failure: unknown };

/**
 * An error in a message between threads: its class is lost. `code`: the name of an errno, or a code of Weir.
 */
export type SentFailure = { readonly message: string; readonly code: string | undefined };
