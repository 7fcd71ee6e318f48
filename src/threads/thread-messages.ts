/**
 * The requests that a worker thread serves: a function type for each request name. Arguments and results are
 * cloned or transferred between the threads.
 */
export type ThreadRequests<A> = Readonly<Record<keyof A, (...parameters: never[]) => unknown>>;
export type RequestParameters<A extends ThreadRequests<A>, Name extends keyof A> = Parameters<A[Name]>;
export type RequestResult<A extends ThreadRequests<A>, Name extends keyof A> = Awaited<ReturnType<A[Name]>>;

export type RequestMessage = {
  readonly kind: 'ask';
  readonly id: number;
  readonly name: PropertyKey;
  readonly parameters: readonly unknown[];
};
export type ReplyMessage =
  | { readonly kind: 'answer'; readonly id: number; readonly value: unknown }
  | { readonly kind: 'failure'; readonly id: number; readonly failure: unknown };

/**
 * The form of an error in a message between threads, in which the class of the error is lost. `code` is the
 * name of an errno, or an error code of Weir.
 */
export type SentFailure = { readonly message: string; readonly code: string | undefined };
