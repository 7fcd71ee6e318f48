import type { ChildProcess } from 'node:child_process';
import { chown, readFile, rm, writeFile } from 'node:fs/promises';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { built } from '#threads/built-file.js';
import { relayFromLoopback } from './relay.js';
import { type Topology, temporaryFolder } from './topology.js';

/**
 * A running Weir node in the network namespace `node` of a topology. Its API is reachable on loopback of the
 * current namespace.
 */
export type NodeProcess = {
  readonly url: string;
  readonly folder: string;
  /** The process id of the node; changes with each restart. */
  readonly pid: number;
  token(): Promise<string>;
  /** Sends one HTTP request to the API with the admin token. */
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply>;
  /**
   * Resolves when `/ready` reports that all checks pass, except the checks named in `except`. Rejects after
   * `timeoutMs` or if the node ends.
   */
  ready(options?: { except?: readonly string[]; timeoutMs?: number }): Promise<void>;
  /**
   * Sends a signal to the node, and waits until the process has ended. Resolves with the exit code; null if
   * the signal ended the process, or if the process was not running.
   */
  end(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null>;
  /**
   * Kills the node if it runs, and starts it again with the same data folder and pinned maps. `changed`
   * replaces options for this start and all later starts.
   */
  restart(changed?: Pick<NodeOptions, 'command' | 'without'>): Promise<void>;
  log(): Promise<string>;
  /** Kills the node, ends the relay to its API, and removes the folder. */
  remove(): Promise<void>;
};

type Reply = {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Each access parses the text again. Undefined if the content type is not JSON. */
  readonly body: unknown;
};

export const program = (name: 'relay' | 'tour-traffic' | 'tour-web'): string => built(`node/${name}.js`);

const installed = process.env.WEIR_COMMAND;
/**
 * The command line of `weir`: the program in WEIR_COMMAND, by default this build. With WEIR_COMMAND, the
 * end-to-end tests run an installed Weir like its systemd unit.
 */
export const weirCommand: readonly [string, ...string[]] =
  installed === undefined ? [process.execPath, built('../bin/weir.js')] : [installed];

const REQUEST_TIMEOUT_MS = 60_000;
const POLL_TIMEOUT_MS = 3_000;

export type NodeOptions = {
  /** The id of the node; `node-a` by default. */
  readonly id?: string;
  /** The path of the `bin/weir.js` to run. The default is `weirCommand`. */
  readonly command?: string | undefined;
  readonly port?: number;
  /** Members of the configuration section `dataplane`, besides the interfaces and the pin path. */
  readonly dataplane?: Readonly<Record<string, unknown>>;
  /** The number of the only CPU on which the node may run. By default the node may run on all CPUs. */
  readonly cpu?: string;
  /**
   * Capabilities that the node must not have, as names without `CAP_`. By default the node keeps all
   * capabilities.
   */
  readonly without?: readonly string[];
  /**
   * The only capabilities that the node may have, as names without `CAP_`. The file capabilities of a program
   * cannot add more, because the node runs with `no_new_privs`.
   */
  readonly only?: readonly string[];
  /** The user id and group id of the node; root by default. */
  readonly user?: number;
  /** The service manager of the node. Each start of the node gets the stored descriptors. */
  readonly serviceManager?: {
    readonly socketPath: string;
    /** The file descriptors that the simulated service manager keeps for the node, by name. */
    readonly stored: ReadonlyMap<string, number>;
  };
  /** Further sections of the configuration. A section replaces the default section of the same name. */
  readonly sections?: Readonly<Record<string, unknown>>;
};

export async function startNode(topology: Topology, options: NodeOptions = {}): Promise<NodeProcess> {
  const folder = await temporaryFolder('node');
  const configFile = join(folder, 'weir.yaml');
  const logFile = join(folder, 'weir.log');
  const config = {
    version: 1,
    node: { id: options.id ?? 'node-a', data_dir: join(folder, 'data') },
    log: { level: 'info', format: 'json' },
    api: { listen: '127.0.0.1:8080' },
    dataplane: { interfaces: ['lan0', 'wan0'], pin_path: topology.pinPath, ...options.dataplane },
    policy: { fallback: 'deny' },
    ...options.sections,
  };
  // Write JSON: every JSON text is also valid YAML.
  await writeFile(configFile, `${JSON.stringify(config, null, 2)}\n`);
  if (options.user !== undefined) await chown(folder, options.user, options.user);

  const socketPath = join(folder, 'api.sock');
  const inside = topology.node.start(process.execPath, [program('relay'), socketPath, '127.0.0.1', '8080']);
  await firstLine(inside);
  const outside: { server: Server; port: number } = await relayFromLoopback(options.port ?? 0, socketPath);
  const url = `http://127.0.0.1:${outside.port}`;

  let child: ChildProcess | undefined;
  let launched = options;
  const launch = (): void => {
    // `exec` replaces the shell, so that `child.pid` is the process id of the node. Otherwise signals would
    // reach the shell only.
    const bound = launched.cpu === undefined ? '' : `taskset -c ${launched.cpu} `;
    const { socketPath, stored } = launched.serviceManager ?? { stored: new Map<string, number>() };
    const passed = `export LISTEN_PID=$$ LISTEN_FDS=${stored.size} LISTEN_FDNAMES=${[...stored.keys()].join(':')}; `;
    const shell = `${stored.size > 0 ? passed : ''}exec ${bound}${privileges(launched)}"$@" >>"$0" 2>&1`;
    const command = launched.command === undefined ? weirCommand : [process.execPath, launched.command];
    const words = ['-c', shell, logFile, ...command, 'run', '--config', configFile];
    const environment = socketPath === undefined ? process.env : { ...process.env, NOTIFY_SOCKET: socketPath };
    child = topology.node.start('sh', words, environment, [...stored.values()]);
  };
  const token = async (): Promise<string> => (await readFile(join(folder, 'data', 'admin.token'), 'utf8')).trim();

  const node: NodeProcess = {
    url,
    folder,
    get pid() {
      return child?.pid ?? 0;
    },
    token,
    request: async (method, path, body, headers = {}) => {
      const response = await fetch(url + path, {
        method,
        headers: {
          authorization: `Bearer ${await token()}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
        signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
      });
      const text = await response.text();
      const isJson = /json/.test(response.headers.get('content-type') ?? '');
      const { status, headers: answered } = response;
      return {
        status,
        headers: answered,
        text,
        get body(): unknown {
          return isJson ? (JSON.parse(text) as unknown) : undefined;
        },
      };
    },
    ready: async ({ except = [], timeoutMs = 60_000 } = {}) => {
      const deadline = performance.now() + timeoutMs;
      let last = 'no answer';
      while (performance.now() < deadline) {
        if (child?.exitCode !== null && child?.exitCode !== undefined) {
          throw new Error(
            `the node ended with exit code ${child.exitCode}:\n${await readFile(logFile, 'utf8').catch(() => '')}`,
          );
        }
        try {
          const response = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(POLL_TIMEOUT_MS) });
          const report = (await response.json()) as {
            checks: { name: string; ok: boolean; state: string; detail: string }[];
          };
          const failing = report.checks.filter((check) => !check.ok && !except.includes(check.name));
          if (failing.length === 0) return;
          last = failing.map((check) => `${check.name}: ${check.state} (${check.detail})`).join('; ');
        } catch (failure) {
          last = String(failure);
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      throw new Error(`the node is not ready: ${last}\n${await readFile(logFile, 'utf8').catch(() => '')}`);
    },
    end: async (signal) => {
      const running = child;
      if (running === undefined || running.exitCode !== null || running.signalCode !== null) return null;
      const exited = new Promise<number | null>((resolve) => running.once('exit', (code) => resolve(code)));
      running.kill(signal);
      return exited;
    },
    restart: async (changed = {}) => {
      await node.end('SIGKILL');
      launched = { ...launched, ...changed };
      launch();
    },
    log: () => readFile(logFile, 'utf8'),
    remove: async () => {
      await node.end('SIGKILL');
      inside.kill('SIGKILL');
      outside.server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
  launch();
  return node;
}

/**
 * Returns the beginning of a command line that restricts privileges with `setpriv`. Returns an empty text if
 * the options restrict nothing.
 */
function privileges({ without = [], only, user }: NodeOptions): string {
  const sets = (marked: readonly string[]): string => marked.join(',').toLowerCase();
  if (only === undefined) {
    return without.length === 0 ? '' : `setpriv --bounding-set ${sets(without.map((name) => `-${name}`))} `;
  }
  const kept = sets(['-all', ...only.map((name) => `+${name}`)]);
  const words = ['setpriv', '--no-new-privs', '--bounding-set', kept];
  // On `execve`, root gets its capabilities from the bounding set. Any other user needs ambient capabilities.
  const inherited = user === undefined ? [] : ['--inh-caps', kept, '--ambient-caps', kept];
  const identity = user === undefined ? [] : ['--reuid', user, '--regid', user, '--clear-groups'];
  return `${[...words, ...identity, ...inherited, '--pdeathsig', 'KILL'].join(' ')} `;
}

/**
 * Resolves with the first line of text that a child process prints. Rejects if the child process ends before
 * its first line.
 */
export function firstLine(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(text.slice(0, end));
    });
    child.once('exit', (code) =>
      reject(
        new Error(`the process ended with ${code === null ? 'a signal' : `exit code ${code}`} before its first line`),
      ),
    );
  });
}
