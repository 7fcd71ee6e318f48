import { writeSync } from 'node:fs';
import { openStore } from '#store/store.js';
import { storedPolicy } from './stored-policy.js';

/** Commits generation after generation until it is killed, and says each one once it is acknowledged. */
const say = (message: object) => writeSync(1, `${JSON.stringify(message)}\n`);
const findings: string[] = [];
const store = await openStore(process.argv[2] ?? '', ({ code }) => findings.push(code));
const active = await store.policies.active();
let generation = await store.policies.generation();
say({
  type: 'opened',
  generation,
  revision: active?.record.revision ?? 0,
  body: active?.body.toString() ?? '',
  findings,
});
for (;;) {
  generation += 1;
  const body = `{"generation":${generation},"filler":"${'x'.repeat((generation * 7919) % 60_000)}"}`;
  await store.policies.commit({ put: storedPolicy({ id: 'a', revision: generation }, body), generation });
  say({ type: 'acknowledged', generation });
}
