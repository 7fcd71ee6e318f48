import type { PolicyThread } from './policy-thread.js';

/**
 * Returns a policy thread that ends when it had no task for `idleMs` milliseconds. This frees the memory of
 * the policies that the thread keeps. The next task starts the thread again.
 */
export function endingWhenIdle(thread: PolicyThread, idleMs: number): PolicyThread {
  let tasks = 0;
  let timer: NodeJS.Timeout | undefined;
  return {
    ...thread,
    async perform(work, options) {
      clearTimeout(timer);
      tasks++;
      try {
        return await thread.perform(work, options);
      } finally {
        tasks--;
        if (tasks === 0) timer = setTimeout(() => void thread.close(), idleMs).unref();
      }
    },
    close() {
      clearTimeout(timer);
      return thread.close();
    },
  };
}
