/**
 * The requests that a worker thread serves: for each name, a function type. Messages clone or transfer
 * arguments and results.
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
 * The form of an error in a message between threads; the class of the error is lost. `code` is the name of an
 * errno, or an error code of Weir.
 */
export type SentFailure = { readonly message: string; readonly code: string | undefined };
