import { expect, test } from 'vitest';
import { SeenConnectionRecorder } from '#service-plane/connection/seen-connections.js';
import { request, seenConnection } from '#test/observe/connections.js';

const untimed = ({ atMs: _, ...seen }: ReturnType<typeof seenConnection>) => seen;
const allowed = untimed(seenConnection({ verdict: 'allow' }));
const denied = untimed(seenConnection());

test('`SeenConnectionRecorder` always records denied connections, and allowed connections only if `allowedWanted` is true', () => {
  const seen = new SeenConnectionRecorder();
  seen.add(allowed, 1);
  seen.add(denied, 2);
  expect(seen.drain()).toEqual({ connections: [{ ...denied, atMs: 2 }], lost: 0, lostDenied: 0 });
  seen.allowedWanted = true;
  seen.add(allowed, 3);
  expect(seen.drain()).toEqual({ connections: [{ ...allowed, atMs: 3 }], lost: 0, lostDenied: 0 });
  expect(seen.drain()).toEqual({ connections: [], lost: 0, lostDenied: 0 });
});

test('`SeenConnectionRecorder` records 8,192 denied connections despite many allowed connections, and counts the others as lost', () => {
  const seen = new SeenConnectionRecorder();
  seen.allowedWanted = true;
  for (let count = 0; count < 10_000; count++) seen.add(allowed, 1);
  for (let count = 0; count < 9_000; count++) seen.add(denied, 1);
  const { connections, lost, lostDenied } = seen.drain();
  expect(connections.filter(({ verdict }) => verdict === 'deny').length).toBe(8_192);
  expect([connections.length, lost, lostDenied]).toEqual([16_384, 19_000 - 16_384, 9_000 - 8_192]);
  seen.add(denied, 1);
  expect(seen.drain()).toMatchObject({ connections: [{ verdict: 'deny' }], lost: 0, lostDenied: 0 });
});

test('`SeenConnectionRecorder` shortens a path to 512 characters', () => {
  const seen = new SeenConnectionRecorder();
  seen.add(untimed(request(`/${'a'.repeat(9_000)}`)), 1);
  seen.add(untimed(request(`/${'a'.repeat(511)}`)), 1);
  const paths = seen.drain().connections.map(({ http }) => http?.path);
  expect(paths).toEqual([`/${'a'.repeat(510)}…`, `/${'a'.repeat(511)}`]);
});
