import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { built } from '#threads/built-file.js';

test('the demonstration `weir start --cluster` shows a killed node, an outage of etcd, and the findings of all nodes', async () => {
  const tour = spawn(process.execPath, [built('../bin/weir.js'), 'start', '--cluster'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [output, [code]] = await Promise.all([text(tour.stdout), once(tour, 'exit')]);
  expect([code, output]).toEqual([0, expect.stringContaining('packets denied at n1, n2, n3')]);
  expect(output).toContain('staged by 2/3 members');
  expect(output).toMatch(
    /Nothing of the tour is left on this machine\.\nNext:\n(.*weir .*\n){4}.*docs\/README\.md .*\n$/,
  );
  expect(output).toContain('503: this node does not receive the changes of etcd');
});
