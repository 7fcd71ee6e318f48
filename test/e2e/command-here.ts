import type { NamespaceCommands } from '#cli/tour/topology.js';
import { weir } from '#cli/weir.js';
import { enterNamespace } from '#test/kernel/namespace.js';

/**
 * Runs a `weir` command in this process, with this thread in a network namespace until the command ends. A
 * process for each command would take 0.15 s of processor time. Only for commands without HTTP requests: all
 * sockets that this thread opens meanwhile are in the namespace.
 */
export async function commandHere(namespace: NamespaceCommands, ...words: readonly string[]) {
  const written = { stdout: '', stderr: '' };
  const leave = enterNamespace(namespace.name);
  try {
    const code = await weir(words, {
      environment: process.env,
      colours: false,
      out: (text) => {
        written.stdout += text;
      },
      err: (text) => {
        written.stderr += text;
      },
      drained: () => Promise.resolve(),
      input: () => Promise.resolve(''),
      interruption: () => new AbortController().signal,
      ask: null,
    });
    return { code, ...written };
  } finally {
    leave();
  }
}
