import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { serviceManager } from '#sockets/listening/service-manager.js';
import { FakeServiceManager } from '#test/e2e/service-manager.js';

const PERIOD_MS = 90;

let manager: FakeServiceManager;
let endKeepAlive = (): void => {};
beforeEach(async () => {
  manager = await FakeServiceManager.start();
});
afterEach(async () => {
  endKeepAlive();
  await manager.close();
});

/** Returns the variables that systemd sets for a service with this watchdog. */
const variables = (pid: number): NodeJS.ProcessEnv => ({
  NOTIFY_SOCKET: manager.socketPath,
  WATCHDOG_USEC: String(PERIOD_MS * 1_000),
  WATCHDOG_PID: String(pid),
});
const notified = (environment: NodeJS.ProcessEnv) =>
  serviceManager(environment, (failure) => {
    throw failure;
  });
const keepAlive = (environment: NodeJS.ProcessEnv): void => {
  endKeepAlive = notified(environment)?.keepAlive() ?? endKeepAlive;
};
const alive = () => manager.messages.filter((message) => message === 'WATCHDOG=1').length;

describe('the watchdog of the service manager', () => {
  it('the watchdog of the service manager gets a message at once, and three messages in each period while the event loop runs', async () => {
    keepAlive(variables(process.pid));
    await expect.poll(alive, { interval: 5 }).toBe(1);
    await expect.poll(alive, { interval: 5 }).toBeGreaterThan(6);
  });

  it('the watchdog of the service manager gets no message while the event loop is blocked', async () => {
    keepAlive(variables(process.pid));
    await expect.poll(alive, { interval: 5 }).toBeGreaterThan(1);
    const before = alive();
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10 * PERIOD_MS);
    await pause(20);
    expect(alive() - before).toBeLessThan(4);
  });

  it('the watchdog of the service manager gets no message from a process other than the service', async () => {
    keepAlive(variables(process.pid + 1));
    notified(variables(process.pid + 1))?.ready('');
    await expect.poll(() => manager.messages).toEqual(['READY=1']);
    await pause(PERIOD_MS);
    expect(manager.messages).toEqual(['READY=1']);
  });

  it('the watchdog of the service manager gets no message if the service has no watchdog', async () => {
    keepAlive({ NOTIFY_SOCKET: manager.socketPath });
    notified({ NOTIFY_SOCKET: manager.socketPath })?.stopping();
    await expect.poll(() => manager.messages).toEqual(['STOPPING=1']);
  });
});

it('the variables of the service manager are removed from the environment, so that a child process does not get them', () => {
  const environment = { ...variables(process.pid), PATH: '/bin' };
  notified(environment);
  expect(environment).toEqual({ PATH: '/bin' });
});
