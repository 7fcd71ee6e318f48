import { fromPromise } from 'xstate';
import { ask } from '#bus/ask.js';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { PolicyWrite } from '#bus/policy-requests.js';
import { accepted, Refused } from '#bus/refused.js';
import type { Program } from '#contracts/program.js';
import type { Proof, SampleOrPromise } from '#contracts/proof-types.js';
import { type PrepareWritePorts, prepareWrite, replay } from '#policy-write/prepare-write.js';
import { policyChart } from '#statecharts/policy.chart.js';
import { refusal } from '#statecharts/refusal.js';
import { type PolicyChange, writeChart } from '#statecharts/write.chart.js';
import { StoreError } from '#store/store-error.js';

/** The maximum time to wait for the dataplane to stage or unstage a program. */
const STAGE_TIMEOUT_MS = 60_000;
const FLIP_TIMEOUT_MS = 5_000;

/**
 * Binds the policy chart to the store and to the policy thread. The actor sends requests to the dataplane
 * over the bus.
 */
export function policyActor(bus: Bus<Message>, ports: PrepareWritePorts) {
  const publish = (_: unknown, { message }: { message: Message | null }): void => {
    if (message !== null) bus.publish(message);
  };
  const write = writeChart.provide({
    actions: { publish },
    actors: {
      prepare: fromPromise<Awaited<ReturnType<typeof prepareWrite>>, { write: PolicyWrite }>(({ input, signal }) =>
        prepareWrite(ports, input.write, signal).catch((failure: unknown) => {
          throw storeRefused(failure);
        }),
      ),
      stage: fromPromise<
        { lines: number; proof: Proof },
        { program: Program; sample: SampleOrPromise; generation: number }
      >(async ({ input }) => accepted(await ask(bus, 'program.stage', input, STAGE_TIMEOUT_MS))),
      unstage: fromPromise<void, { generation: number }>(async ({ input }) => {
        accepted(await ask(bus, 'program.unstage', input, STAGE_TIMEOUT_MS));
      }),
      commit: fromPromise<void, { change: PolicyChange }>(({ input }) =>
        ports.policies.commit(input.change).catch((failure: unknown) => {
          throw storeRefused(failure);
        }),
      ),
      flip: fromPromise<{ epoch: number }, { generation: number }>(async ({ input }) =>
        accepted(await ask(bus, 'program.flip', input, FLIP_TIMEOUT_MS)),
      ),
    },
  });
  return policyChart.provide({
    actions: { publish },
    actors: { write, replay: fromPromise(({ signal }) => replay(ports, signal)) },
  });
}

function storeRefused(failure: unknown): unknown {
  return failure instanceof StoreError ? new Refused(refusal('store_unavailable', failure.message)) : failure;
}
