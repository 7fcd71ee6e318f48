import { expect, test } from 'vitest';
import { createActor, fromPromise, waitFor } from 'xstate';
import type { Message } from '#bus/bus-messages.js';
import type { Proof } from '#contracts/policy/proof-types.js';
import { type Desired, type SwapCommitted, swapChart } from '#statecharts/swap.chart.js';
import { PROGRAM, SAMPLES } from './sample.js';

const TARGET = { program: PROGRAM, samples: SAMPLES, generation: 2 };
const PROOF: Proof = { classes: 1, checked: 2, complete: true };

function startSwap(stageRequest: string | null) {
  const published: (Message | SwapCommitted['type'])[] = [];
  const log: string[] = [];
  const logged = <T>(step: string, output: T) => {
    log.push(step);
    return output;
  };
  const chart = swapChart.provide({
    actions: {
      publish: (_, { message }) => {
        if (message !== null) published.push(message);
      },
      announceCommitment: () => published.push('swap.committed'),
    },
    actors: {
      stage: fromPromise(async () => logged('stage', { lines: 3 })),
      prove: fromPromise<Proof, Desired>(async () => logged('prove', PROOF)),
      flip: fromPromise(async () => logged('flip', { epoch: 7, sinceMs: 9, uncompiled: 0 })),
      unstage: fromPromise<void>(async () => void log.push('unstage')),
    },
  });
  const actor = createActor(chart, { input: { target: TARGET, stageRequest } }).start();
  const ended = async () => (await waitFor(actor, ({ status }) => status === 'done')).output;
  return { actor, published, log, ended };
}

/** The output of a swap whose program is in force. */
const FLIPPED = { kind: 'flipped', generation: 2, program: PROGRAM, epoch: 7, sinceMs: 9, uncompiled: 0 };

test('the swap chart puts a new compiled policy in force at once after its proof (kernel test run), unless a request only to stage it started the chart', async () => {
  const { published, log, ended } = startSwap(null);
  expect(await ended()).toEqual(FLIPPED);
  expect(log).toEqual(['stage', 'prove', 'flip']);
  expect(published).toEqual([{ type: 'program.proved', generation: 2, proof: PROOF }]);
});

test('after a request only to stage a compiled policy, the swap chart puts it in force only on a flip request, and sends swap.committed before that', async () => {
  const { actor, published, log, ended } = startSwap('s');
  await waitFor(actor, (snapshot) => snapshot.matches('staged'));
  actor.send({ type: 'program.flip_requested', id: 'f', generation: 2 });
  expect(await ended()).toEqual(FLIPPED);
  expect(log).toEqual(['stage', 'prove', 'flip']);
  expect(published.slice(1)).toEqual([
    { type: 'program.stage_answered', id: 's', outcome: { kind: 'staged', lines: 3, proof: PROOF } },
    'swap.committed',
  ]);
});

test('the swap chart removes a compiled policy that is loaded and tested but not in force from the kernel if another policy has superseded it', async () => {
  const { actor, log, ended } = startSwap('s');
  actor.send({ type: 'program.superseded' });
  expect(await ended()).toEqual({ kind: 'unstaged' });
  expect(log).toEqual(['stage', 'prove', 'unstage']);
});
