import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished, vi } from 'vitest';
import { recordExample } from '#api/policies/policy.schema.js';
import { weir } from '#cli/weir.js';

export type Answer = {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
};
export const TOKEN = { WEIR_TOKEN: 't' };
/** A record of a policy, as the API answers it. */
export const RECORD = { ...recordExample, id: 'p-1', updated_by: 'alice' };

/** Returns an answer with the status 200. */
export const ok = (body: unknown, headers: Record<string, string> = {}): Answer => ({ status: 200, body, headers });

type Asked = {
  readonly method: string;
  readonly path: string;
  readonly authorization: string;
  readonly body: string;
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
};

/** Starts a server that returns `answers` in order, repeats the last answer, and records the requests. */
export async function serverThatAnswers(...answers: readonly [Answer, ...Answer[]]) {
  const asked: Asked[] = [];
  const server = createServer(async (request: IncomingMessage, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const { method = '', url: path = '', headers } = request;
    const { status, body, headers: said = {} } = answers[Math.min(asked.length, answers.length - 1)] as Answer;
    const preconditions = { ifMatch: headers['if-match'], ifNoneMatch: headers['if-none-match'] };
    asked.push({ method, path, authorization: headers.authorization ?? '', body: text, ...preconditions });
    if (status === 302) response.setHeader('location', '/elsewhere');
    for (const [name, value] of Object.entries(said)) response.setHeader(name, value);
    response.statusCode = status;
    response.end(body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

/** Sets the current time for the current test. Timers still use real time. */
export function clockAt(time: string): void {
  vi.useFakeTimers({ toFake: ['Date'], now: new Date(time) });
  onTestFinished(() => void vi.useRealTimers());
}

type Surroundings = {
  readonly input?: string;
  readonly colours?: boolean;
  readonly interruption?: AbortSignal;
  /** The line that the user types at a prompt. Undefined: the terminal is not interactive. */
  readonly typed?: string;
};

/**
 * Runs the `weir` command line in the test process. After each print, `onOut` receives the whole standard
 * output of the run so far.
 */
export async function run(
  words: readonly string[],
  environment: Record<string, string> = {},
  { input = '', colours = false, interruption = new AbortController().signal, typed }: Surroundings = {},
  onOut: (all: string) => void = () => {},
) {
  let out = '';
  let err = '';
  const code = await weir(words, {
    environment,
    colours,
    out: (text) => {
      out += text;
      onOut(out);
    },
    err: (text) => {
      err += text;
    },
    drained: async () => {},
    input: async () => input,
    interruption: () => interruption,
    ask:
      typed === undefined
        ? null
        : async (question) => {
            err += question;
            return typed;
          },
  });
  return { code, out, err };
}
