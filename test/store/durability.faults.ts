import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, it } from 'vitest';
import { openStore } from '#store/store.js';
import { built } from '#threads/built-file.js';
import { temporaryFolder } from './temporary-folder.js';

const ROUNDS = 30;

type Said =
  | {
      readonly type: 'opened';
      readonly generation: number;
      readonly revision: number;
      readonly body: string;
      readonly findings: readonly string[];
    }
  | { readonly type: 'acknowledged'; readonly generation: number };

/**
 * Starts a process that commits, and kills it `delayMs` after its message number `acknowledgements`. The
 * first message is `opened`, and each further message acknowledges one commit. Returns all messages of the
 * process.
 */
async function killedWhileCommitting(dataDir: string, acknowledgements: number, delayMs: number): Promise<Said[]> {
  const program = built('test/store/committing-process.js');
  const child = spawn(process.execPath, [program, dataDir], { stdio: ['ignore', 'pipe', 'inherit'] });
  const said: Said[] = [];
  createInterface(child.stdout).on('line', (line) => {
    said.push(JSON.parse(line) as Said);
    if (said.length === acknowledgements) setTimeout(() => child.kill('SIGKILL'), delayMs);
  });
  const [, signal] = await once(child, 'close');
  expect(signal).toBe('SIGKILL');
  return said;
}

it(`the store has every acknowledged commit after its process is killed by SIGKILL, in ${ROUNDS} rounds`, async () => {
  const dataDir = temporaryFolder();
  let acknowledged = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const said = await killedWhileCommitting(dataDir, 1 + Math.floor(Math.random() * 12), Math.random() * 6);
    for (const message of said) {
      if (message.type === 'opened') {
        expect([acknowledged, acknowledged + 1]).toContain(message.generation);
        expect(message.revision).toBe(message.generation);
        if (message.generation > 0) expect(JSON.parse(message.body).generation).toBe(message.generation);
        expect(message.findings).toEqual([]);
      }
      acknowledged = message.generation;
    }
  }

  const store = await openStore(dataDir, () => {});
  const generation = await store.policies.generation();
  const revisions = (await store.policies.history('a')).map(({ revision }) => revision);
  expect(generation).toBeGreaterThanOrEqual(acknowledged);
  expect(revisions).toEqual(Array.from({ length: generation }, (_, index) => generation - index));
  await store.close();
});
