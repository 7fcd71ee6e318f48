import { afterEach, describe, expect, test } from 'vitest';
import type { HitReport } from '#contracts/datapath/datapath.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import { anyFlow } from '#dataplane/flows/listing/flow-filter.js';
import { fakeDatapath } from '../actors/fake-datapath.js';
import { removal, singleton, startSystem, stopSystems } from '../actors/running-system.js';

afterEach(stopSystems);

const HITS = { groups: [], rules: [], unused: undefined, from: 0, limit: 10 };
const FLOWS = { filter: anyFlow(), after: null, limit: 10 };

describe('requests for the hits and flows of the live traffic', () => {
  test('requests for hits and flows are refused as feature_unavailable if the configuration has no dataplane section', async () => {
    const { system } = await startSystem({ dataplane: null });
    const { traffic } = system;
    const answers = [await traffic.hits(HITS), await traffic.flows(FLOWS), await traffic.cutFlows(anyFlow())];
    const refused = { kind: 'refused', code: 'feature_unavailable' };
    expect(answers).toEqual([1, 2, 3].map(() => expect.objectContaining(refused)));
  });

  test('requests for hits and flows are refused until the dataplane runs, and requests for hits until the datapath returns a hit report', async () => {
    const datapath = fakeDatapath();
    datapath.on.open = () => {
      throw new Error('not now');
    };
    const { system, until } = await startSystem({ datapath, dataplane: { datapath, interfaces: ['lan0'] } });
    await until('dataplane_running', 'backing_off');
    expect(await system.traffic.flows(FLOWS)).toMatchObject({ code: 'dataplane_unavailable' });
    datapath.on.open = () => {};
    await until('policy_ready', 'never_activated');
    expect(await system.traffic.flows(FLOWS)).toEqual({ matched: 0, items: [], next: null });
    expect(await system.traffic.hits(HITS)).toMatchObject({ code: 'dataplane_unavailable' });
    const report: HitReport = { policy: null, generation: 1, sinceMs: 0, items: [], next: null };
    datapath.hits = async () => report;
    expect(await system.traffic.hits(HITS)).toEqual(report);
    datapath.cutFlows = async () => 3;
    expect(await system.traffic.cutFlows(anyFlow())).toEqual({ cut: 3 });
  });

  test('hit counters belong to the id of the active policy record, also after a restart, and to a fixed identity without an active record', async () => {
    const datapath = fakeDatapath();
    const staged: RuleNames[] = [];
    const given = fakeDatapath();
    datapath.stage = (program, generation) => {
      staged.push(program.ruleNames);
      return given.stage(program, generation);
    };
    const started = await startSystem({ datapath, dataplane: { datapath, interfaces: ['lan0'] } });
    await started.until('policy_ready', 'never_activated');
    const written = await started.system.policies.write(singleton('lan'));
    if (written.kind !== 'written') throw new Error(JSON.stringify(written));
    const { id, revision } = written.stored.record;
    await started.system.shutdown();
    const again = await startSystem({ datapath, dataplane: { datapath, interfaces: ['lan0'] }, store: started.store });
    await again.until('policy_ready', 'active');
    await again.system.policies.write(removal(id));
    expect(staged.map(({ policy }) => policy)).toEqual([null, { id, revision }, { id, revision }, null]);
    const [none, first, second, last] = staged.map(({ identities }) => identities);
    expect([second, last]).toEqual([first, none]);
    // The default of a policy and the fallback policy have different hit counters. With one counter, the hits
    // of a policy would include packets that no policy decided.
    expect(first?.slice(-2)).not.toEqual(none);
  });
});
