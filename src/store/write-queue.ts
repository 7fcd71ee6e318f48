/**
 * Returns a function that runs tasks one after the other, in the order of the calls. After a failed task, the
 * next task runs.
 */
export function createTurns(): <T>(task: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (task) => {
    const running = last.then(task);
    last = running.catch(() => undefined);
    return running;
  };
}
