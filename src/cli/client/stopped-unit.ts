import { execFile } from 'node:child_process';
import { CliError } from '#cli/errors/command-error.js';
import { pause } from '#cli/pause.js';
import { processOfSocket } from '#libc/proc/proc-sockets.js';
import { isOfThisMachine, listenersAt } from './api-listener.js';

const UNIT = 'weir.service';
export const ADVICE_ON_UNIT =
  '`journalctl -u weir` shows why it does not run; `weir dataplane status` shows what the kernel enforces';
const FIRST_LOOK_MS = 2_000;
const NEXT_LOOK_MS = 1_000;
/** With this number of restarts during one request, the unit counts as failing repeatedly. */
const RESTARTS = 2;
const SYSTEMCTL_TIMEOUT_MS = 2_000;
/** The process id of systemd. */
const SYSTEMD = 1;

/**
 * Sends a request to a server. Resolves or rejects with the request. But if the server is on this machine and
 * its systemd unit does not run, rejects instead of waiting: systemd keeps the listening socket in its
 * descriptor store, so connections succeed and no process answers.
 */
export async function whileUnitRuns<T>(server: URL, request: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const given = new AbortController();
  const ended = new AbortController();
  const look = async (): Promise<void> => {
    let before: UnitState | null = null;
    let restartsBefore: number | null = null;
    for (let wait = FIRST_LOOK_MS; ; wait = NEXT_LOOK_MS) {
      await pause(wait, ended.signal);
      const unit: UnitState | null = ended.signal.aborted ? null : await stateOfUnit(server);
      if (ended.signal.aborted) return;
      restartsBefore ??= unit?.restarts ?? null;
      const restarts = (unit?.restarts ?? 0) - (restartsBefore ?? 0);
      // Require two successive checks without a process, because a unit has no process for a short time
      // during a restart.
      const isStopped = unit?.isStopped === true && before?.isStopped === true;
      if (unit !== null && (isStopped || restarts >= RESTARTS)) return given.abort(stopped(unit.text));
      before = unit;
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
 * The state of the systemd unit. `isStopped`: it has no process. `restarts`: how often systemd has restarted
 * it.
 */
type UnitState = { readonly text: string; readonly isStopped: boolean; readonly restarts: number };

/**
 * Returns the state of the unit if systemd holds the socket that listens at `server`, alone or with the
 * process of the unit; null otherwise. Only root can read the process of each socket. For other users, uses
 * the number of descriptors that systemd stores for the unit.
 */
async function stateOfUnit(server: URL): Promise<UnitState | null> {
  const holders = listenersAt(server).map(({ inode }) => processOfSocket(inode)?.pid);
  if (holders.length === 0) return null;
  const shown = await propertiesOfUnit();
  const { ActiveState: active, SubState: sub, MainPID: pid, NFileDescriptorStore: stored, NRestarts } = shown;
  const isForeign = holders.some((each) => each !== undefined && each !== SYSTEMD && each !== Number(pid));
  const isHeld = Number(stored) > 0 || holders.includes(SYSTEMD);
  if (active === undefined || isForeign || !isHeld) return null;
  return {
    text: `${active}, ${sub}`,
    isStopped: active !== 'active' && pid === '0',
    restarts: Number(NRestarts ?? 0),
  };
}

/** Returns an empty object if there is no systemctl, or if it fails. */
function propertiesOfUnit(): Promise<Readonly<Record<string, string>>> {
  const words = ['show', UNIT, '--property=ActiveState,SubState,MainPID,NFileDescriptorStore,NRestarts'];
  return new Promise((resolve) => {
    execFile('systemctl', words, { timeout: SYSTEMCTL_TIMEOUT_MS }, (failure, stdout) => {
      const lines = failure === null ? stdout.split('\n') : [];
      resolve(Object.fromEntries(lines.map((line) => line.split(/=(.*)/, 2))) as Readonly<Record<string, string>>);
    });
  });
}
