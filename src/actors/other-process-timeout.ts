/** The time in milliseconds within which a killed or terminating Weir process releases its locks. */
const WAIT_MS = 2_000;

/**
 * Returns a function that receives each failure to open the datapath. The code `other_process` means that
 * another process owns the datapath. The function calls `onTimeout` if such a failure occurs `WAIT_MS` or
 * more after the first one.
 */
export function otherProcessTimeout(onTimeout: (failure: Error) => void, now: () => number = () => performance.now()) {
  let since: number | undefined;
  return (failure: unknown): void => {
    if (!(failure instanceof Error) || !('code' in failure) || failure.code !== 'other_process') return;
    since ??= now();
    if (now() - since >= WAIT_MS) onTimeout(failure);
  };
}
