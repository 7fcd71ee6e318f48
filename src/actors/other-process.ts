/** A killed or terminating Weir process releases its locks within this time. */
const WAIT_MS = 2_000;

/**
 * Returns a function that receives each failure to open the datapath. A failure with the code `other_process`
 * means that another process owns the datapath. The function calls `giveUp` for such a failure that occurs 2
 * s or more after the first such failure.
 */
export function givingUpToOther(giveUp: (failure: Error) => void, now: () => number = () => performance.now()) {
  let since: number | undefined;
  return (failure: unknown): void => {
    if (!(failure instanceof Error) || !('code' in failure) || failure.code !== 'other_process') return;
    since ??= now();
    if (now() - since >= WAIT_MS) giveUp(failure);
  };
}
