import { type ReadonlySignal, useSignal } from '@preact/signals';

export type Action = {
  readonly isBusy: ReadonlySignal<boolean>;
  readonly failure: ReadonlySignal<unknown>;
  /** Runs `work`, unless an earlier call still runs. Resolves to whether it succeeded. */
  readonly run: (work: () => Promise<unknown>) => Promise<boolean>;
};

/**
 * Returns the state of an action of the user on the node: whether it runs now, and the error of its last run.
 */
export function useAction(): Action {
  const isBusy = useSignal(false);
  const failure = useSignal<unknown>(null);
  const run = async (work: () => Promise<unknown>) => {
    if (isBusy.value) return false;
    isBusy.value = true;
    failure.value = null;
    try {
      await work();
      return true;
    } catch (error) {
      failure.value = error;
      return false;
    } finally {
      isBusy.value = false;
    }
  };
  return { isBusy, failure, run };
}
