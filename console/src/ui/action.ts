import { type ReadonlySignal, useSignal } from '@preact/signals';

export type Action = {
  readonly isBusy: ReadonlySignal<boolean>;
  readonly failure: ReadonlySignal<unknown>;
  /** Does it, unless it is done at present. Resolves to whether it succeeded. */
  readonly run: (work: () => Promise<unknown>) => Promise<boolean>;
};

/** Something that a person does to the node: whether it is done now, and why it failed the last time. */
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
