import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { EVERY_FINDING } from '#observe/findings/finding-filter.js';
import { Observer } from '#observe/observer.js';
import { eventually } from '#test/eventually.js';
import { address } from '#test/policy/sample.js';
import { ownersSince, pod } from './owners.js';

const SOURCE = address('10.0.0.7');
const denied = (hostname: string) => ({
  lookups: [
    {
      source: SOURCE,
      hostname,
      type: 1,
      generation: 7,
      word: verdictWord(0, 'deny', false),
      count: 1,
      lastMs: Date.now(),
    },
  ],
  rebindings: [],
  named: [],
  lost: 0,
  lostDenied: 0,
});

test('`Observer` gives each new thread all Kubernetes owners of addresses before its first event, and the running thread each change', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'weir-observer-'));
  let owner = 'first';
  const observer = new Observer(
    {
      dataDir,
      nodeId: 'node-a',
      findings: { retentionMs: 3_600_000, maxEntries: 100, file: null, webhook: null },
      flowHistory: { retentionMs: 0, maxFlows: 1_000 },
      replayMs: 0,
    },
    {
      wanted: () => {},
      trouble: () => {},
      relief: () => {},
      owners: () => ownersSince(0, { [SOURCE]: owner }, true),
      begun: () => {},
    },
  );
  onTestFinished(async () => {
    await observer.close();
    await rm(dataDir, { recursive: true });
  });
  const ownerOf = async (hostname: string) => {
    const { items } = await observer.findings({ filter: EVERY_FINDING, limit: 100, cursor: null });
    return items.find((finding) => finding.hostname === hostname)?.sourceOwner;
  };
  const names = (hostname: string, name: string) =>
    eventually(async () => expect(await ownerOf(hostname)).toEqual(pod(name)));
  observer.see(denied('early.test'));
  await observer.begin();
  await names('early.test', 'first');
  observer.seeOwners(ownersSince(Date.now() - 1, { [SOURCE]: 'second' }));
  observer.see(denied('changed.test'));
  await names('changed.test', 'second');

  const died = new Promise((resolve) => observer.watch(resolve));
  observer.see(null as never);
  await died;
  owner = 'third';
  await observer.begin();
  observer.see(denied('restarted.test'));
  await names('restarted.test', 'third');
});
