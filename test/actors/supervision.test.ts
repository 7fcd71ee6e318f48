import { expect, test } from 'vitest';
import { createActor, fromCallback, fromPromise, SimulatedClock, waitFor } from 'xstate';
import { routeMessages } from '#actors/router.js';
import { createBus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import { dataplaneChart } from '#statecharts/dataplane.chart.js';
import { nodeChart } from '#statecharts/node.chart.js';
import { eventually } from '#test/eventually.js';
import { INSPECTION, LOOKUPS, NEEDS, WRITE } from '#test/statecharts/sample.js';

const idle = fromCallback(() => {});
const INPUT = {
  configured: { dataplane: true, dns: false, servicePlane: false, cluster: false },
  activationTimeoutMs: 5_000,
};

function supervising(policy: () => Promise<void>) {
  const clock = new SimulatedClock();
  const inputs: unknown[] = [];
  const dnsProxy = fromCallback(({ input }) => void inputs.push(input));
  const actors = {
    policy: fromPromise(policy),
    dataplane: idle,
    dnsProxy,
    servicePlane: idle,
    cluster: idle,
    pendingChange: idle,
    performanceMode: idle,
    reload: idle,
    observer: idle,
    policyFile: idle,
    writeThread: idle,
    explainThread: idle,
    draftThread: idle,
    kubernetesThread: idle,
    integrations: idle,
  };
  const node = createActor(nodeChart.provide({ actors }), { input: INPUT, clock }).start();
  return { node, clock, inputs };
}

test('the node restarts an actor that ends with an error, after a growing delay, and restarts no other actor', async () => {
  let starts = 0;
  const { node, clock, inputs } = supervising(() => {
    starts++;
    return Promise.reject(new Error(`bug ${starts}`));
  });
  for (const backoffMs of [100, 200, 400]) {
    await waitFor(node, (snapshot) => snapshot.matches({ policy: 'down' }));
    const before = starts;
    clock.increment(backoffMs - 1);
    expect(starts).toBe(before);
    clock.increment(1);
    expect(starts).toBe(before + 1);
  }
  await waitFor(node, (snapshot) => snapshot.matches({ policy: 'down' }));
  expect(node.getSnapshot().context.ended).toEqual({ policy: 'bug 4' });
  expect(inputs).toHaveLength(1);
  node.stop();
});

test('60 s without a failure reset the restart delay of an actor of the node', async () => {
  let starts = 0;
  const { node, clock } = supervising(() =>
    starts++ === 0 ? Promise.reject(new Error('bug')) : new Promise(() => {}),
  );
  await waitFor(node, (snapshot) => snapshot.matches({ policy: 'down' }));
  clock.increment(100);
  expect(node.getSnapshot().context.restarts.policy).toBe(1);
  clock.increment(60_000);
  expect(node.getSnapshot().context.restarts.policy).toBe(0);
  node.stop();
});

test('the node stops 10 s after a shutdown request although no part responds', () => {
  const { node, clock } = supervising(() => new Promise(() => {}));
  node.send({
    type: 'policy.activated',
    record: null,
    generation: 0,
    epoch: 1,
    needs: NEEDS,
    selectors: [],
    lookups: LOOKUPS,
    inspection: INSPECTION,
  });
  expect(node.getSnapshot().matches({ phase: 'running' })).toBe(true);
  node.send({ type: 'shutdown.requested' });
  clock.increment(6_000);
  expect(node.getSnapshot().value).toMatchObject({ phase: { draining: 'releasing' } });
  clock.increment(4_000);
  expect(node.getSnapshot().value).toMatchObject({ phase: 'stopped' });
  node.stop();
});

test('the router refuses a request to an actor that is being restarted, instead of dropping the request', () => {
  const bus = createBus<Message>();
  const seen: Message[] = [];
  bus.messages.subscribe((message) => seen.push(message));
  routeMessages(bus, () => undefined);
  bus.publish({ type: 'policy.write_requested', id: 'w', write: WRITE });
  expect(seen[1]).toEqual({
    type: 'policy.write_answered',
    id: 'w',
    outcome: {
      kind: 'refused',
      code: 'feature_unavailable',
      detail: 'the policy actor failed and is being restarted',
    },
  });
});

test('the dataplane actor ends with an error if its interfaces actor fails, so that the node restarts the dataplane', async () => {
  const interfaces = fromPromise(() => Promise.reject(new Error('bug')));
  const actors = {
    interfaces: interfaces as never,
    probe: fromPromise<readonly []>(() => new Promise(() => {})) as never,
  };
  const dataplane = createActor(dataplaneChart.provide({ actors }), { input: { configured: true, needed: false } });
  dataplane.subscribe({ error: () => {} });
  dataplane.start();
  await eventually(() => expect(dataplane.getSnapshot()).toMatchObject({ status: 'error', error: new Error('bug') }));
});
