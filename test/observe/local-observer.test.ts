import { MessageChannel } from 'node:worker_threads';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { EventSource } from '#contracts/datapath/event-source.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import type { PackedEvents } from '#dataplane/events/batch.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import { MergeError } from '#observe/findings/store/finding-store.js';
import { FlowHistory } from '#observe/flow-history/flow-history.js';
import { LocalObserver } from '#observe/local-observer.js';
import { ruleNamesOf } from '#policy/model/rules/rule-names.js';
import { StoreError } from '#store/store-error.js';
import { address, group, policy, rule } from '#test/policy/sample.js';
import { seenConnection } from './connections.js';
import { packedOf } from './events.js';
import { ownersSince, pod } from './owners.js';

const ruleNames = ruleNamesOf(policy([group(['10.0.0.0/8'], [rule({ id: 'no' })], { id: 'lan' })]));
const placed = { ruleNames, generation: 7, entries: Uint32Array.from([5, 6]), epoch: 3 };
const lookups = (count: number) => ({
  lookups: [
    {
      source: address('10.0.0.7'),
      hostname: 'www.example.com',
      type: 1,
      generation: 7,
      word: verdictWord(0, 'deny', false),
      count,
      lastMs: 1_000,
    },
  ],
  rebindings: [],
  named: [],
  lost: 9,
  lostDenied: 4,
});

let merged: FindingDelta[];
let failure: Error | null;
let said: string[];
let observer: LocalObserver;
let batches: MessageChannel;
let facts: MessageChannel;
let source: EventSource;
beforeEach(() => {
  merged = [];
  failure = null;
  said = [];
  const keeper = {
    count: 0,
    merge: async (deltas: readonly FindingDelta[]) => {
      if (failure !== null) throw failure;
      merged.push(...deltas);
    },
  };
  observer = new LocalObserver(
    keeper,
    {
      frame: () => {},
      subscribed: () => {},
      refused: () => {},
      wanted: ({ flows, lookups: seen, connections }) => said.push(`wanted ${flows} ${seen} ${connections}`),
      trouble: (error) => said.push(`trouble ${String(error)}`),
      relief: (code) => said.push(code),
    },
    0,
  );
  batches = new MessageChannel();
  facts = new MessageChannel();
  source = { batches: batches.port2, facts: facts.port2, taken: new Int32Array(new SharedArrayBuffer(4)) };
  observer.readEvents(source);
});
afterEach(async () => {
  await observer.close();
  for (const { port1 } of [batches, facts]) port1.close();
});
const shown = () => merged.map(({ type, rule: by, target, count }) => [type, by ?? target, count]);

test('`LocalObserver` names the rule of a denied DNS query right after an activation, before any packet event', async () => {
  facts.port1.postMessage({ kind: 'rule_names', placed });
  observer.see(lookups(2));
  await observer.merge();
  expect(shown()).toEqual([
    ['dns_deny', 'no', 2],
    ['gap', 'dns', 4],
  ]);
});

test('`LocalObserver` makes a finding with name, address and reason for an address that the rebind protection removed', async () => {
  const reason = 'private_use; allowed only for names in dns.rebind_allow';
  const seen = {
    source: 0x0a000001,
    hostname: 'nas.example.com',
    address: 0x0a010203,
    reason,
    generation: 1,
    count: 2,
  };
  const none = { ...lookups(0), lookups: [], lost: 0, lostDenied: 0 };
  observer.see({ ...none, rebindings: [{ ...seen, lastMs: 5 }] });
  observer.see({ ...none, rebindings: [{ ...seen, lastMs: 7 }] });
  await observer.merge();
  expect(merged).toMatchObject([
    {
      type: 'dns_deny',
      source: '10.0.0.1',
      destination: '10.1.2.3',
      hostname: 'nas.example.com',
      reason: `rebinding: ${reason}`,
      effectiveAction: 'deny',
      decidedBy: null,
      count: 4,
    },
  ]);
});

test('`LocalObserver` names the rule of a denied connection, and counts denials that the service plane lost in a finding of type gap', async () => {
  facts.port1.postMessage({ kind: 'rule_names', placed });
  const decider = { kind: 'rule', group: 'lan', rule: 'no' } as const;
  observer.seeConnections({ connections: [seenConnection({ decider })], lost: 9, lostDenied: 4 });
  await observer.merge();
  expect(shown()).toEqual([
    ['tls_deny', 'no', 1],
    ['gap', 'service_plane', 4],
  ]);
  expect(observer.counts()).toMatchObject({ lostServicePlane: 9, findings: { merged: 1, gaps: 4 } });
});

test('`LocalObserver` requests allowed events only while the filter of a reader can match allowed events', () => {
  const none = { sources: [], destinations: [], ports: [], protocols: [], hostnames: [], groups: [], rules: [] };
  observer.hub.open(1, { ...none, verdicts: [], types: ['http'] }, 0);
  observer.reportWanted();
  observer.hub.open(2, { ...none, verdicts: ['deny'], types: ['tls'] }, 0);
  observer.hub.close(1);
  observer.reportWanted();
  expect(said).toEqual(['wanted false false false', 'wanted false false true', 'wanted false false false']);
});

test('`LocalObserver` requests events of flows while it records which flows were seen, and records them', async () => {
  const history = new FlowHistory({ retentionMs: 3_600_000, maxFlows: 1_000 }, Date.now());
  const asked: boolean[] = [];
  const recording = new LocalObserver(
    { count: 0, merge: async () => {} },
    {
      ...{ frame: () => {}, subscribed: () => {}, refused: () => {}, trouble: () => {}, relief: () => {} },
      wanted: ({ flows }) => void asked.push(flows),
    },
    0,
    history,
  );
  const { port1, port2 } = new MessageChannel();
  recording.readEvents({ ...source, batches: port2 });
  port1.postMessage(packedOf([{ type: 'flow_opened', destinationPort: 443 }], { unixMs: Date.now() }));
  await expect.poll(() => recording.counts().flowHistory.flows).toBe(1);
  expect(asked).toEqual([true]);
  await recording.close();
  port1.close();
});

test('`LocalObserver` repeats a failed merge later without losing findings, and reports the failure only once', async () => {
  facts.port1.postMessage({ kind: 'rule_names', placed });
  failure = new StoreError('store_no_space', 'write: No space left');
  observer.see(lookups(2));
  await observer.merge();
  await observer.merge();
  observer.see({ ...lookups(3), lostDenied: 0 });
  failure = null;
  await observer.merge();
  expect(shown()).toEqual([
    ['dns_deny', 'no', 5],
    ['gap', 'dns', 4],
  ]);
  expect(said).toEqual(['wanted false false false', 'trouble StoreError: write: No space left', 'findings_stored']);
});

test('`LocalObserver` does not pass changes of findings to the next merge if the failed merge has already stored these changes', async () => {
  facts.port1.postMessage({ kind: 'rule_names', placed });
  observer.see({ ...lookups(2), lostDenied: 0 });
  failure = new MergeError([], new StoreError('store_unavailable', 'remove'));
  await observer.merge();
  failure = null;
  await observer.merge();
  expect(shown()).toEqual([]);
});

test('`LocalObserver` acknowledges a batch of events at once, and makes findings when the rule names of the policy arrive', async () => {
  const events = packedOf(
    [{ type: 'denied', verdict: 'deny', epoch: 3, hit: 5, hitCheck: ruleNames.identities[0] as number }],
    {
      lost: 3,
    },
  );
  batches.port1.postMessage(events satisfies PackedEvents);
  await expect.poll(() => Atomics.load(source.taken, 0)).toBe(1);
  await observer.merge();
  expect(shown()).toEqual([]);
  facts.port1.postMessage({ kind: 'rule_names', placed });
  await observer.merge();
  expect(shown()).toEqual([
    ['l4_deny', 'no', 1],
    ['gap', 'dataplane', 3],
  ]);
  expect(observer.counts()).toMatchObject({ lostKernel: 3, events: { denied: 1 }, findings: { merged: 1, gaps: 3 } });
});

test('`LocalObserver` names the owner of the source in a finding', async () => {
  facts.port1.postMessage({ kind: 'rule_names', placed });
  observer.seeOwners(ownersSince(0, { [address('10.0.0.7')]: 'web' }, true));
  observer.see(lookups(2));
  await observer.merge();
  expect(merged[0]?.sourceOwner).toEqual(pod('web'));
});
