import { expect, test } from 'vitest';
import { createActor, fromCallback } from 'xstate';
import { clusterChart } from '#statecharts/cluster.chart.js';

const silent = fromCallback(() => () => {});

test('the cluster chart keeps the reason why the node is refused until the node is a member, also after its local copy of the cluster keys caught up with etcd', () => {
  const chart = clusterChart.provide({ actors: { replicate: silent, join: silent, watchLeader: silent } });
  const actor = createActor(chart, { input: { configured: true, generation: 0 } }).start();
  const reason = () => actor.getSnapshot().context.trouble.cluster;
  actor.send({ type: 'member.refused', reason: 'another node has the id' });
  actor.send({ type: 'replica.caught_up' });
  expect([actor.getSnapshot().matches({ membership: { participating: 'refused' } }), reason()]).toEqual([
    true,
    'another node has the id',
  ]);
  actor.send({ type: 'member.joined' });
  expect(reason()).toBeUndefined();
  actor.stop();
});
