/** A process that is killed or drains keeps its locks for less. */
const PATIENCE_MS = 2_000;

/**
 * Takes the failures of attempts to open the datapath. Calls `giveUp` with the first one that says that another process
 * has it, 2 s or more after the first such failure (`code` `other_process`).
 */
export function givingUpToOther(giveUp: (failure: Error) => void, now: () => number = () => performance.now()) {
  let since: number | undefined;
  return (failure: unknown): void => {
    if (!(failure instanceof Error) || !('code' in failure) || failure.code !== 'other_process') return;
    since ??= now();
    if (now() - since >= PATIENCE_MS) giveUp(failure);
  };
}
