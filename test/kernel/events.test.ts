import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { type Datapath, NO_EVENTS } from '#contracts/datapath/datapath.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { EventConsumer } from '#dataplane/events/event-consumer.js';
import type { Observation } from '#dataplane/events/observation.js';
import { Surroundings } from '#dataplane/events/surroundings.js';
import { openDatapath } from '#dataplane/thread/datapath-thread.js';
import { detach } from '#dataplane/thread/detach.js';
import { ALL_EVENTS } from '#test/dataplane/all-events.js';
import { datapathOptions } from './datapath-options.js';
import { denyAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const topology = topologyOfFile('ev');

let datapath: Datapath;
let pings: Observation[];
let spread: number;
let surroundings: Surroundings;
let eventConsumer: EventConsumer | undefined;

beforeEach(async () => {
  datapath = openDatapath(datapathOptions(topology.pinPath, { forwarding: 'direct' }));
  pings = [];
  spread = 0;
  surroundings = new Surroundings();
  datapath.onEventSource((source) => {
    eventConsumer = new EventConsumer(source, surroundings, (batch) => {
      for (const observation of batch) {
        if (observation.protocol !== IPPROTO.icmp) continue;
        pings.push(observation);
        spread = Math.max(spread, Math.abs(Date.now() - batch.unixMs(observation.timeNs)));
      }
    });
  });
  await open();
  await datapath.stage(denyAll, 1);
  await datapath.flip();
});
afterEach(async () => {
  eventConsumer?.close();
  await datapath.close();
  detach(topology.pinPath);
});

async function open(): Promise<void> {
  await datapath.open();
  await datapath.attach();
}
const ping = (count: number) =>
  topology.client.run('ping', '-n', '-c', `${count}`, '-i', '0.01', '-W', '0.3', ADDRESSES.server);
const seen = () => pings.length;

test('the event of a denied packet reaches the observer thread within two seconds, with the time of the denial', async () => {
  await datapath.setEventsWanted(ALL_EVENTS);
  await ping(1);
  await expect.poll(seen).toBe(1);
  expect(pings[0]).toMatchObject({
    type: 'denied',
    verdict: 'deny',
    dropReason: 'policy_deny',
    source: parseIpv4Address(ADDRESSES.client),
    destination: parseIpv4Address(ADDRESSES.server),
    icmp: { type: 8, code: 0 },
    length: 98,
  });
  expect(spread).toBeLessThan(2_000);
});

test('the datapath sends events only while a reader wants events, and drops denied packets in any case', async () => {
  await ping(2);
  await datapath.setEventsWanted(ALL_EVENTS);
  await ping(2);
  await expect.poll(seen).toBe(2);
  await datapath.setEventsWanted(NO_EVENTS);
  await ping(2);
  await datapath.setEventsWanted(ALL_EVENTS);
  await ping(1);
  await expect.poll(seen).toBe(3);
  const { drops, events } = await datapath.stats();
  expect(drops.policy_deny?.packets).toBe(7n);
  expect(events).toEqual({ sent: 3n, lost: 0n, suppressed: 0n });
});

test('a restarted process reads the events that the datapath wrote while no process ran', async () => {
  await datapath.setEventsWanted(ALL_EVENTS);
  await datapath.close();
  await ping(3);
  await open();
  await expect.poll(seen).toBe(3);
});

test('the datapath loses no event while the reader is blocked for two seconds and the ring buffer is not full', async () => {
  await datapath.setEventsWanted(ALL_EVENTS);
  const held = ping(50);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000);
  await held;
  await expect.poll(seen).toBe(50);
});
