import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { NO_SELECTORS } from '#contracts/kubernetes/membership.js';
import { FAMILIES } from '#contracts/policy/policy-model.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';
import type { ServicePlane, ServicePlaneChange } from '#service-plane/service-plane.js';
import { createServicePlane } from '#service-plane/thread/service-plane-threads.js';
import { denyAll } from '#test/kernel/policies.js';
import { freePort } from '#test/sockets/free-port.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { makeCertificates } from './certificates.js';

const { rootPem } = makeCertificates();
/** An invalid policy image. Each service-plane thread that receives the image ends with an error. */
const DEADLY = { generation: 1, policy: {}, intercepts: false, scope: NO_SELECTORS } as unknown as InspectionImage;
const LOOPBACK = 0x7f00_0001;

let upstreamCa: string;
let plane: ServicePlane;
let changes: ServicePlaneChange[];
beforeEach(async () => {
  upstreamCa = join(temporaryFolder(), 'roots.pem');
  writeFileSync(upstreamCa, rootPem);
  plane = createServicePlane({
    families: FAMILIES,
    listen: { address: LOOPBACK, port: await freePort() },
    workers: 2,
    upstreamCa,
    deniedHttp: '403',
    mark: 0,
    upstreamMark: 0,
    maxConnections: 16,
    maxConnectionsPerSource: 16,
  });
  changes = [];
  plane.watch((change) => changes.push(change));
});
afterEach(() => plane.close());

test('pending calls reject, watchers get `worker_died`, and `open` starts all threads again after a service-plane thread ends with an error', async () => {
  await plane.open();
  plane.use(DEADLY);
  await expect(plane.stats()).rejects.toThrow('a thread of the service plane died');
  await expect.poll(() => changes.map(({ type }) => type)).toContain('worker_died');
  plane.use({ generation: 2, program: denyAll, policy: null, intercepts: false, scope: NO_SELECTORS });
  await plane.open();
  expect(await plane.stats()).toMatchObject({ connections: 0, upstreamCaFault: null });
});

test('`open` takes the service-plane threads that `begin` started, and starts new threads if one of them has died', async () => {
  let started = 0;
  const count = (): void => void started++;
  process.on('worker', count);
  onTestFinished(() => void process.off('worker', count));
  plane.begin();
  await plane.open();
  expect(await plane.stats()).toMatchObject({ connections: 0 });
  // Each thread has a splicing thread.
  expect(started).toBe(4);
  await plane.close();

  plane.begin();
  plane.use(DEADLY);
  await expect.poll(() => changes.map(({ type }) => type)).toContain('worker_died');
  plane.use({ generation: 2, program: denyAll, policy: null, intercepts: false, scope: NO_SELECTORS });
  await plane.open();
  expect(await plane.stats()).toMatchObject({ connections: 0 });
  expect(started).toBe(12);
});

test('an upstream_ca file without a certificate, and its repair, are each reported once for all threads, also to a later watcher', async () => {
  await plane.open();
  writeFileSync(upstreamCa, 'nothing');
  const fault = `read ${upstreamCa}: the file contains no readable PEM certificate`;
  const soon = { timeout: 5_000 };
  await expect.poll(() => changes, soon).toEqual([{ type: 'upstream_ca_changed', fault }]);
  await expect.poll(async () => (await plane.stats()).upstreamCaFault, soon).toBe(fault);
  const later: ServicePlaneChange[] = [];
  plane.watch((change) => later.push(change));
  expect(later).toEqual(changes);
  writeFileSync(upstreamCa, rootPem);
  await expect.poll(() => changes.slice(1), soon).toEqual([{ type: 'upstream_ca_changed', fault: null }]);
});

test('the service plane does not open if the upstream_ca file contains no certificate', async () => {
  writeFileSync(upstreamCa, 'nothing');
  await expect(plane.open()).rejects.toThrow('the file contains no readable PEM certificate');
  writeFileSync(upstreamCa, rootPem);
  await plane.open();
  expect(await plane.stats()).toMatchObject({ connections: 0 });
});

test('`change` gives all service-plane threads new settings, also at the next `open`, and changes nothing if upstream_ca is unreadable', async () => {
  await plane.open();
  const settings = { upstreamCa, deniedHttp: 'reset', maxConnections: 32, maxConnectionsPerSource: 32 } as const;
  const other = join(temporaryFolder(), 'other.pem');
  writeFileSync(other, 'nothing');
  const fault = 'the file contains no readable PEM certificate';
  await expect(plane.change({ ...settings, upstreamCa: other })).rejects.toThrow(fault);
  writeFileSync(other, rootPem);
  await plane.change({ ...settings, upstreamCa: other });
  // Remove the former file. Then only a thread with the new setting reads its file without a fault.
  rmSync(upstreamCa);
  await new Promise((resolve) => setTimeout(resolve, 1_300));
  expect(await plane.stats()).toMatchObject({ upstreamCaFault: null });
  await plane.open();
  expect(await plane.stats()).toMatchObject({ upstreamCaFault: null });
});

test('a policy given to `accept` (used before the datapath is open) has an effect only while connections wait, and never replaces a policy given to `use`', async () => {
  plane.accept(DEADLY);
  await plane.open();
  expect(await plane.stats()).toMatchObject({ connections: 0 });
  plane.use({ generation: 2, program: denyAll, policy: null, intercepts: false, scope: NO_SELECTORS });
  plane.accept(DEADLY);
  await plane.open({ awaitsGrants: true });
  expect(await plane.stats()).toMatchObject({ connections: 0 });
  expect(changes).toEqual([]);
});
