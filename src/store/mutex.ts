/**
 * Creates a mutex, and returns its function `runExclusive`. This function runs a task while it holds the
 * mutex, and returns the result of the task. Waiting tasks run in the order of the calls. A failed task
 * releases the mutex.
 */
export function createMutex(): <T>(task: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (task) => {
    const running = last.then(task);
    last = running.catch(() => undefined);
    return running;
  };
}
