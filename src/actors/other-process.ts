/** A process that is killed or drains releases its locks within this time. */
const PATIENCE_MS = 2_000;

/**
 * Counts failures to open the datapath. Calls `giveUp` with the first failure that reports another owner
 * (`code` `other_process`) 2 s or more after the first such failure.
 */
export function givingUpToOther(giveUp: (failure: Error) => void, now: () => number = () => performance.now()) {
  let since: number | undefined;
  return (failure: unknown): void => {
    if (!(failure instanceof Error) || !('code' in failure) || failure.code !== 'other_process') return;
    since ??= now();
    if (now() - since >= PATIENCE_MS) giveUp(failure);
  };
}
