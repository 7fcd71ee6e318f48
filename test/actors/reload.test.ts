import { pino } from 'pino';
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { ReloadPorts } from '#actors/reload.actor.js';
import type { System } from '#actors/system-contract.js';
import { Refused } from '#bus/refused.js';
import type { DnsSettings, ReloadPart, ReloadPlan, ServicePlaneSettings } from '#contracts/config/config-reload.js';
import { logFacts } from '#node/log.js';
import { reloadBySighup } from '#node/reload.js';
import { eventually } from '#test/eventually.js';
import { fakeDatapath } from './fake-datapath.js';
import { startSystem, stopSystems } from './running-system.js';

const NOW = '2026-01-01T00:00:00.000Z';
const NO_FAULTS = { faults: [], warnings: [] };
const REQUEST = { dryRun: false, allowUnpoliced: false, allowOpen: false, author: 'alice' };

afterEach(stopSystems);

function planOf(...parts: ReloadPart[]): ReloadPlan {
  return { parts, applied: parts.map((part) => `/${part}`), unchanged: ['/version'], needsRestart: ['/node/id'] };
}

/** Starts a system with a fake datapath and a fake configuration. `fail` names the steps that fail. */
async function reloading(plan: ReloadPlan, ...fail: string[]) {
  const steps: string[] = [];
  const held = new Map<string, Promise<void>>();
  const step = async (name: string): Promise<void> => {
    steps.push(name);
    await held.get(name);
    if (fail.includes(name)) throw new Error(`${name} failed`);
  };
  const datapath = fakeDatapath();
  datapath.on.police = () => step(datapath.log.at(-1) ?? '');
  const reload: ReloadPorts = {
    read: async () => {
      await step('read');
      return plan;
    },
    validate: () => step('validate'),
    settings: (which) => ({
      interfaces: which === 'next' ? ['lan0', 'wan0'] : ['lan0'],
      dns: {} as DnsSettings,
      servicePlane: {} as ServicePlaneSettings,
    }),
    change: (part, which) => step(`${part} ${which}`),
    commit: () => void steps.push('commit'),
  };
  const running = await startSystem({ datapath, reload });
  await running.until('dataplane_config', 'configured');
  /** Makes a step wait until the returned function is called. */
  const hold = (name: string): (() => void) => {
    let release = (): void => {};
    held.set(name, new Promise((resolve) => (release = resolve)));
    return () => release();
  };
  return { ...running, steps, datapath, hold };
}
const lastOf = ({ configuration }: System) => configuration.lastReload();

describe('a reload', () => {
  test('a configuration reload changes the parts of the node in the planned order, and then makes the file the running configuration', async () => {
    const { system, steps } = await reloading(planOf('dataplane', 'policy_file', 'api', 'log'));
    expect(lastOf(system)).toBeNull();
    expect(await system.configuration.reload(REQUEST)).toEqual({
      kind: 'reloaded',
      applied: ['/dataplane', '/policy_file', '/api', '/log'],
      unchanged: ['/version'],
      needsRestart: ['/node/id'],
    });
    expect(steps).toEqual([
      ...['read', 'validate', 'police lan0,wan0', 'policy_file next', 'api next', 'log next', 'commit'],
    ]);
    expect(lastOf(system)).toEqual({
      at: NOW,
      by: 'alice',
      result: 'applied',
      detail: null,
      applied: ['/dataplane', '/policy_file', '/api', '/log'],
      needsRestart: ['/node/id'],
    });
  });

  test('a failed configuration reload restores first the part that failed, and then the changed parts in reverse order', async () => {
    const { system, steps } = await reloading(planOf('dataplane', 'policy_file', 'api', 'log'), 'log next');
    expect(await system.configuration.reload(REQUEST)).toEqual({
      kind: 'refused',
      code: 'reload_failed',
      detail: 'log next failed',
    });
    expect(steps.slice(2)).toEqual([
      ...['police lan0,wan0', 'policy_file next', 'api next', 'log next'],
      ...['log running', 'api running', 'policy_file running', 'police lan0'],
    ]);
    expect(lastOf(system)).toMatchObject({ result: 'rolled_back', detail: 'log next failed', applied: [] });
  });

  test('a configuration reload that may stop policing interfaces also releases renamed interfaces, and polices them again if a later part fails', async () => {
    const { system, steps } = await reloading(planOf('dataplane', 'log'), 'log next');
    const request = { ...REQUEST, allowUnpoliced: true };
    expect(await system.configuration.reload(request)).toMatchObject({ detail: 'log next failed' });
    expect(steps.slice(2)).toEqual([
      ...['police lan0,wan0 and release', 'log next', 'log running', 'police lan0 and restore'],
    ]);
  });

  test('a failed configuration reload names the parts that did not take back their former settings, and restores the other parts', async () => {
    const plan = planOf('dataplane', 'policy_file', 'api');
    const { system, steps } = await reloading(plan, 'api next', 'policy_file running');
    const detail =
      'api next failed; parts that could not get their former settings back: policy_file: policy_file running failed';
    expect(await system.configuration.reload(REQUEST)).toMatchObject({ code: 'reload_failed', detail });
    expect(steps.at(-1)).toBe('police lan0');
    expect(lastOf(system)).toMatchObject({ result: 'rollback_failed', detail });
  });

  test('a configuration reload whose interfaces the datapath refuses changes no other part, and restores the former interfaces', async () => {
    const { system, steps } = await reloading(planOf('dataplane', 'log'), 'police lan0,wan0');
    expect(await system.configuration.reload(REQUEST)).toMatchObject({ detail: 'police lan0,wan0 failed' });
    expect(steps).toEqual(['read', 'validate', 'police lan0,wan0', 'police lan0']);
  });

  test('a configuration reload polices the new interfaces even if the state of the datapath cannot be reviewed afterwards', async () => {
    const { system, steps, datapath } = await reloading(planOf('dataplane'));
    datapath.review = () => Promise.reject(new Error('the datapath is not open'));
    expect(await system.configuration.reload(REQUEST)).toMatchObject({ kind: 'reloaded', applied: ['/dataplane'] });
    expect(steps.slice(2)).toEqual(['police lan0,wan0', 'commit']);
  });

  test('a configuration reload restores the former interfaces if a review finds a fault with the new interfaces', async () => {
    const { system, steps, datapath } = await reloading(planOf('dataplane', 'log'));
    const faults = ['wan0 is a port of br0'];
    datapath.on.police = async () => {
      steps.push(datapath.log.at(-1) ?? '');
      datapath.reviewed = steps.at(-1) === 'police lan0,wan0' ? { faults, warnings: [] } : NO_FAULTS;
    };
    expect(await system.configuration.reload(REQUEST)).toMatchObject({ detail: 'wan0 is a port of br0' });
    expect(steps.slice(3)).toEqual(['police lan0,wan*', 'police lan0']);
    expect(lastOf(system)).toMatchObject({ result: 'rolled_back' });
  });

  test.each(['read', 'validate'])(
    'a configuration reload is refused without a change if its step "%s" (read the file, or validate it) fails',
    async (step) => {
      const { system, steps } = await reloading(planOf('log'), step);
      expect(await system.configuration.reload(REQUEST)).toMatchObject({ kind: 'refused', detail: `${step} failed` });
      expect(steps.at(-1)).toBe(step);
      expect(lastOf(system)).toMatchObject({ result: 'refused', by: 'alice' });
    },
  );

  test('a dry run of a configuration reload stops after the validation, and is not recorded as the last reload', async () => {
    const { system, steps } = await reloading(planOf('log'));
    const report = await system.configuration.reload({ ...REQUEST, dryRun: true });
    expect([report, steps, lastOf(system)]).toEqual([
      { kind: 'reloaded', applied: ['/log'], unchanged: ['/version'], needsRestart: ['/node/id'] },
      ['read', 'validate'],
      null,
    ]);
  });

  test('a configuration reload waits for the end of an earlier reload, and reads the configuration file after that', async () => {
    const { system, steps } = await reloading(planOf('log'));
    await Promise.all([system.configuration.reload(REQUEST), system.configuration.reload(REQUEST)]);
    const once = ['read', 'validate', 'log next', 'commit'];
    expect(steps).toEqual([...once, ...once]);
  });

  test('a configuration reload that still waits for an earlier reload when its request times out is never done', async () => {
    const { system, steps, hold } = await reloading(planOf('log'));
    const release = hold('validate');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const replies = [system.configuration.reload(REQUEST), system.configuration.reload(REQUEST)];
    await eventually(() => expect(steps).toEqual(['read', 'validate']));
    await vi.advanceTimersByTimeAsync(200_000);
    const late = { kind: 'refused', code: 'reload_failed', detail: expect.stringContaining('no answer') };
    expect(await Promise.all(replies)).toEqual([late, late]);
    release();
    // A reload that began before is completed and reported.
    await eventually(() => expect(lastOf(system)).toMatchObject({ result: 'applied', applied: ['/log'] }));
    expect(steps).toEqual(['read', 'validate', 'log next', 'commit']);
    expect(await system.configuration.reload(REQUEST)).toMatchObject({ kind: 'reloaded' });
    expect(steps).toHaveLength(8);
  });

  test('a configuration reload of a node without a configuration file is refused', async () => {
    const { system } = await startSystem();
    expect(await system.configuration.reload(REQUEST)).toMatchObject({ code: 'feature_unavailable' });
  });
});

test('a configuration reload with an invalid file returns the problems of the file to the requester', async () => {
  const refusal = {
    kind: 'refused',
    code: 'invalid_config',
    detail: 'the file is not valid',
    problems: [{ pointer: '/log/level', code: 'invalid_value', message: 'weir.yaml:1:2: must be a level' }],
  } as const;
  const reload = { read: () => Promise.reject(new Refused(refusal)) } as unknown as ReloadPorts;
  const { system } = await startSystem({ reload });
  expect(await system.configuration.reload(REQUEST)).toEqual(refusal);
});

describe('the log of a reload by SIGHUP', () => {
  type Line = { readonly level: number; readonly msg: string };
  const [INFO, WARN, ERROR] = [30, 40, 50];

  /** Starts a system whose log is in `lines`. */
  async function logged(plan: ReloadPlan, ...fail: string[]) {
    const running = await reloading(plan, ...fail);
    const lines: Line[] = [];
    const log = pino({ base: null, timestamp: false }, { write: (text: string) => lines.push(JSON.parse(text)) });
    logFacts(running.system, log);
    const hangUp = () => reloadBySighup(running.system, log);
    const ofReloads = () => lines.filter(({ msg }) => /configuration|SIGHUP/.test(msg));
    return { ...running, hangUp, ofReloads };
  }

  test('the log of a configuration reload by SIGHUP has one line for a reload that was applied', async () => {
    const { hangUp, ofReloads } = await logged(planOf('log'));
    await hangUp();
    const told = { by: 'SIGHUP', result: 'applied', applied: ['/log'], needs_restart: ['/node/id'] };
    expect(ofReloads()).toEqual([{ level: INFO, msg: 'configuration reloaded', ...told }]);
  });

  test('the log of a configuration reload by SIGHUP has one line for a failed reload that left a part without its former settings', async () => {
    const { hangUp, ofReloads } = await logged(planOf('policy_file', 'api'), 'api next', 'policy_file running');
    await hangUp();
    const detail =
      'api next failed; parts that could not get their former settings back: policy_file: policy_file running failed';
    const told = { by: 'SIGHUP', result: 'rollback_failed', applied: [], needs_restart: ['/node/id'] };
    expect(ofReloads()).toEqual([{ level: ERROR, msg: `configuration not reloaded: ${detail}`, ...told }]);
  });

  test('the log of a configuration reload by SIGHUP has one line for a reload that did not begin', async () => {
    const { system, hangUp, ofReloads } = await logged(planOf('log'));
    await system.shutdown();
    await hangUp();
    const msg = 'SIGHUP was refused: the node is shut down, or has no configuration file';
    expect(ofReloads()).toEqual([{ level: WARN, msg, code: 'feature_unavailable' }]);
  });
});
