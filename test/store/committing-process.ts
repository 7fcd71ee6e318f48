import { writeSync } from 'node:fs';
import { openStore } from '#store/store.js';
import { storedPolicy } from './stored-policy.js';

/**
 * A process that commits policy generations until a signal kills it. Two of three commits are edits of the
 * previous body. The process prints each generation after the store has acknowledged the commit.
 */
const say = (message: object) => writeSync(1, `${JSON.stringify(message)}\n`);
const findings: string[] = [];
const store = await openStore(process.argv[2] ?? '', ({ code }) => findings.push(code));
const active = await store.policies.active();
let generation = await store.policies.generation();
let length = active?.body.length ?? 0;
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
  const { record } = storedPolicy({ id: 'a', revision: generation }, '');
  const text = Buffer.from(body);
  const edit = { revision: generation - 1, from: 0, to: length, text };
  const put = generation % 3 === 1 ? { record, body: text } : { record, edit };
  await store.policies.commit({ put, generation });
  length = text.length;
  say({ type: 'acknowledged', generation });
}
