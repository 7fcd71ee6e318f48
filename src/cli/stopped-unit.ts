import { execFile } from 'node:child_process';
import { processOfSocket } from '#libc/proc-sockets.js';
import { isOfThisMachine, listenersAt } from './api-listener.js';
import { CliError } from './command-error.js';
import { pause } from './pause.js';

const UNIT = 'weir.service';
export const ADVICE_ON_UNIT =
  '`journalctl -u weir` shows why it does not run; `weir dataplane status` shows what the kernel enforces';
const FIRST_LOOK_MS = 2_000;
const NEXT_LOOK_MS = 1_000;
const SYSTEMCTL_TIMEOUT_MS = 2_000;
/** The process id of systemd. */
const SYSTEMD = 1;

/**
 * Sends a request to a server. Fails while the request waits if the server is on this machine and its unit
 * does not run: systemd keeps the listening socket in its descriptor store, so connections succeed, and no
 * process answers them. Otherwise waits as long as the request does.
 */
export async function whileUnitRuns<T>(server: URL, request: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const given = new AbortController();
  const ended = new AbortController();
  const look = async (): Promise<void> => {
    let before: string | null = null;
    for (let wait = FIRST_LOOK_MS; ; wait = NEXT_LOOK_MS) {
      await pause(wait, ended.signal);
      const state = ended.signal.aborted ? null : await stateOfStoppedUnit(server);
      if (ended.signal.aborted) return;
      // A unit has no process for some time while it restarts.
      if (state !== null && before !== null) return given.abort(stopped(state));
      before = state;
    }
  };
  if (isOfThisMachine(server)) void look();
  try {
    return await request(given.signal);
  } finally {
    ended.abort();
  }
}

function stopped(state: string): CliError {
  const message = `${UNIT} does not run (${state}), and systemd keeps its listening socket: the kernel continues to enforce the last policy`;
  return new CliError(message, { code: 'not_running', fix: ADVICE_ON_UNIT });
}

/** Returns whether a server is on this machine, and the unit has failed. */
export async function hasUnitFailed(server: URL): Promise<boolean> {
  return isOfThisMachine(server) && (await propertiesOfUnit()).ActiveState === 'failed';
}

/**
 * Returns the state of the unit if it has no process and systemd holds the socket that listens at `server`;
 * null otherwise. Only root sees the process of each socket; for other users, the number of descriptors that
 * systemd stores for the unit decides.
 */
async function stateOfStoppedUnit(server: URL): Promise<string | null> {
  const listeners = listenersAt(server);
  const holders = listeners.map(({ inode }) => processOfSocket(inode)?.pid);
  if (listeners.length === 0 || holders.some((pid) => pid !== undefined && pid !== SYSTEMD)) return null;
  const shown = await propertiesOfUnit();
  const { ActiveState: active, SubState: sub, MainPID: pid, NFileDescriptorStore: stored } = shown;
  const isHeld = Number(stored) > 0 || holders.includes(SYSTEMD);
  return active !== undefined && active !== 'active' && pid === '0' && isHeld ? `${active}, ${sub}` : null;
}

/** Returns an empty object if there is no systemctl, or if it fails. */
function propertiesOfUnit(): Promise<Readonly<Record<string, string>>> {
  const words = ['show', UNIT, '--property=ActiveState,SubState,MainPID,NFileDescriptorStore'];
  return new Promise((resolve) => {
    execFile('systemctl', words, { timeout: SYSTEMCTL_TIMEOUT_MS }, (failure, stdout) => {
      const lines = failure === null ? stdout.split('\n') : [];
      resolve(Object.fromEntries(lines.map((line) => line.split(/=(.*)/, 2))) as Readonly<Record<string, string>>);
    });
  });
}
