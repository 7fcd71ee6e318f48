import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { program } from '#cli/tour/node-process.js';
import type { Workstation } from './workstation.js';

const START_MS = 60_000;
const VISIT_MS = 10_000;

/** The text of a page that a browser shows and the protocol by which it came, or the error of the browser. */
export type Visit =
  | { readonly text: string; readonly protocol: string; readonly error?: undefined }
  | { readonly error: string; readonly text?: undefined; readonly protocol?: undefined };

export type Browser = {
  visit(url: string): Promise<Visit>;
  end(): Promise<void>;
};

/** Waits for a message of a browser, `ms` at most. */
async function within<T>(ms: number, doing: string, promise: Promise<T>): Promise<T> {
  const limit = new AbortController();
  const late = pause(ms, undefined, { signal: limit.signal }).then(() => {
    throw new Error(`${doing}: no answer in ${ms} ms`);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    limit.abort();
    late.catch(() => {});
  }
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill('SIGKILL');
  await exited;
}

/** Creates a certificate database of NSS that trusts the CA certificates of the workstation. */
function trustIn(database: string, { anchors, folder }: Workstation): void {
  mkdirSync(database, { recursive: true });
  const certutil = (...words: string[]) =>
    execFileSync('certutil', ['-d', `sql:${database}`, ...words], { stdio: 'pipe' });
  certutil('-N', '--empty-password');
  for (const name of Object.keys(anchors)) {
    certutil('-A', '-n', name, '-t', 'C,,', '-i', join(folder, 'certs', `${name}.pem`));
  }
}

/** JavaScript that returns the text of the shown page, and the protocol by which the browser loaded it. */
const SHOWN = `({ text: document.body.innerText, protocol: performance.getEntriesByType('navigation')[0].nextHopProtocol })`;

type Reply = {
  readonly id?: number;
  readonly result?: Record<string, unknown>;
  readonly error?: { message: string };
  readonly method?: string;
};

/** Starts Chromium with a new profile, driven by the DevTools protocol over its descriptors 3 and 4. */
export async function startChromium(station: Workstation): Promise<Browser> {
  const profile = join(station.home, 'chromium');
  rmSync(join(station.home, '.pki'), { recursive: true, force: true });
  rmSync(profile, { recursive: true, force: true });
  trustIn(join(station.home, '.pki/nssdb'), station);
  const words = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run'];
  const child = station.start(
    'chromium',
    [...words, `--user-data-dir=${profile}`, '--remote-debugging-pipe', 'about:blank'],
    ['pipe', 'pipe'],
  );
  let log = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    log = (log + text).slice(-4_000);
  });
  child.stdout?.resume();
  const [input, output] = [child.stdio[3] as Writable, child.stdio[4] as Readable];
  const waiting = new Map<number, (reply: Reply) => void>();
  const events = new Map<string, () => void>();
  let buffered = '';
  output.setEncoding('utf8').on('data', (chunk: string) => {
    const texts = (buffered + chunk).split('\0');
    buffered = texts.pop() ?? '';
    for (const text of texts) {
      const reply = JSON.parse(text) as Reply;
      if (reply.id !== undefined) waiting.get(reply.id)?.(reply);
      else events.get(reply.method ?? '')?.();
    }
  });
  let last = 0;
  const send = async (
    method: string,
    params: object,
    session?: string,
    ms = START_MS,
  ): Promise<Record<string, unknown>> => {
    const id = ++last;
    const answer = new Promise<Reply>((resolve, reject) => {
      waiting.set(id, resolve);
      child.once('exit', () => reject(new Error(`chromium ended: ${log}`)));
    });
    input.write(
      `${JSON.stringify({ id, method, params, ...(session === undefined ? {} : { sessionId: session }) })}\0`,
    );
    const { result, error } = await within(ms, `chromium, ${method}`, answer).finally(() => waiting.delete(id));
    if (result === undefined) throw new Error(`chromium, ${method}: ${error?.message}`);
    return result;
  };
  try {
    const { targetId } = await send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true });
    const session = String(sessionId);
    await send('Page.enable', {}, session);
    return {
      visit: async (url) => {
        const loaded = new Promise<void>((resolve) => events.set('Page.loadEventFired', resolve));
        try {
          const { errorText } = await send('Page.navigate', { url }, session, VISIT_MS);
          if (typeof errorText === 'string') return { error: errorText };
          await within(VISIT_MS, `chromium, ${url}`, loaded);
        } catch (failure) {
          await send('Page.stopLoading', {}, session);
          return { error: (failure as Error).message };
        }
        const { result } = await send('Runtime.evaluate', { expression: SHOWN, returnByValue: true }, session);
        return (result as { value: Visit }).value;
      },
      end: () => ended(child),
    };
  } catch (failure) {
    await ended(child);
    throw failure;
  }
}

const MARIONETTE_PORT = 2828;
const PREFERENCES: Readonly<Record<string, unknown>> = {
  // By default, Firefox uses no HTTP/3 with a server whose root certificate a user has added.
  'network.http.http3.disable_when_third_party_roots_found': false,
  'app.normandy.enabled': false,
  'browser.shell.checkDefaultBrowser': false,
  'datareporting.policy.dataSubmissionEnabled': false,
  'toolkit.telemetry.reportingpolicy.firstRun': false,
};

/** Starts Firefox with a new profile, and controls it by Marionette through a relay into this namespace. */
export async function startFirefox(
  station: Workstation,
  preferences: Readonly<Record<string, unknown>> = {},
): Promise<Browser> {
  const profile = join(station.home, 'firefox');
  rmSync(profile, { recursive: true, force: true });
  trustIn(profile, station);
  const lines = Object.entries({ ...PREFERENCES, ...preferences }).map(
    ([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`,
  );
  writeFileSync(join(profile, 'user.js'), lines.join(''));
  const child = station.start('firefox-esr', ['--headless', '--marionette', '--profile', profile]);
  for (const stream of [child.stdout, child.stderr]) stream?.resume();
  const path = join(station.home, 'marionette.sock');
  rmSync(path, { force: true });
  const relay = station.namespace.start(process.execPath, [
    program('relay'),
    path,
    '127.0.0.1',
    String(MARIONETTE_PORT),
  ]);
  const end = async (): Promise<void> => {
    await Promise.all([ended(child), ended(relay)]);
  };
  try {
    const { socket, messages } = await marionette(path, child);
    let last = 0;
    const send = async (command: string, parameters: object, ms = START_MS): Promise<unknown> => {
      const id = ++last;
      const text = JSON.stringify([0, id, command, parameters]);
      const answer = new Promise<[number, number, { message: string } | null, unknown]>((resolve) =>
        messages.set(id, resolve),
      );
      socket.write(`${Buffer.byteLength(text)}:${text}`);
      const [, , error, result] = await within(ms, `firefox, ${command}`, answer);
      if (error !== null) throw new Error(error.message);
      return result;
    };
    await send('WebDriver:NewSession', { pageLoadStrategy: 'normal' });
    await send('WebDriver:SetTimeouts', { pageLoad: VISIT_MS });
    return {
      visit: async (url) => {
        try {
          await send('WebDriver:Navigate', { url });
        } catch (failure) {
          return { error: (failure as Error).message };
        }
        const { value } = (await send('WebDriver:ExecuteScript', { script: `return ${SHOWN}`, args: [] })) as {
          value: Visit;
        };
        return value;
      },
      end: async () => {
        socket.destroy();
        await end();
      },
    };
  } catch (failure) {
    await end();
    throw failure;
  }
}

type Messages = Map<number, (message: [number, number, { message: string } | null, unknown]) => void>;

/** Connects to Marionette as soon as Firefox listens. A message is its length, a colon, and JSON. */
async function marionette(path: string, browser: ChildProcess): Promise<{ socket: Socket; messages: Messages }> {
  const messages: Messages = new Map();
  const deadline = performance.now() + START_MS;
  for (;;) {
    const socket = connect(path);
    let buffered = Buffer.alloc(0);
    const greeted = new Promise<boolean>((resolve) => {
      socket.once('error', () => resolve(false)).once('close', () => resolve(false));
      socket.on('data', (chunk: Buffer) => {
        buffered = Buffer.concat([buffered, chunk]);
        for (;;) {
          const colon = buffered.indexOf(':');
          const end = colon + 1 + Number(buffered.toString('latin1', 0, colon));
          if (colon < 0 || buffered.length < end) return;
          const message: unknown = JSON.parse(buffered.toString('utf8', colon + 1, end));
          buffered = buffered.subarray(end);
          if (Array.isArray(message)) messages.get(Number(message[1]))?.(message as never);
          else resolve(true);
        }
      });
    });
    if (await greeted) return { socket, messages };
    socket.destroy();
    if (performance.now() > deadline || browser.exitCode !== null)
      throw new Error('firefox does not listen to Marionette');
    await pause(200);
  }
}
