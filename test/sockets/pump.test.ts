import { closeSync, fstatSync, openSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test, vi } from 'vitest';
import { Descriptors } from '#sockets/descriptors.js';
import { libc } from '#sockets/libc.js';
import { Pump } from '#sockets/pump.js';
import { UdpPort } from '#sockets/udp-port.js';

const nobody = { onDatagram: () => {}, onError: () => {} };

test('a pump that is closed before it has waited closes nothing that is not its own', async () => {
  const pump = new Pump(() => {});
  pump.close();
  const taken = Array.from({ length: 8 }, () => openSync('/dev/null', 'r'));
  for (let turn = 0; turn < 20; turn++) await setImmediate();
  const open = taken.map((fd) => fstatSync(fd).isCharacterDevice());
  for (const fd of taken) closeSync(fd);
  expect(open).toEqual(taken.map(() => true));
});

test('what a pump holds open is known to others, and nothing once it has ended', async () => {
  const descriptors = new Descriptors();
  const held = (): number => new Uint8Array(descriptors.shared).filter((byte) => byte === 1).length;
  const pump = new Pump(() => {}, descriptors);
  const ports = [1, 2, 3].map(() => new UdpPort(pump, { mark: 0 }, nobody));
  expect(held()).toBe(4);
  ports[0]?.close();
  expect(held()).toBe(3);
  pump.close();
  while (held() > 0) await setImmediate();
});

test('descriptors of a thread that is no more are closed by another one', () => {
  const given = new Descriptors();
  const fd = openSync('/dev/null', 'r');
  given.hold(fd);
  new Descriptors(given.shared).closeAll();
  expect(() => fstatSync(fd)).toThrow('EBADF');
  expect(new Uint8Array(given.shared).indexOf(1)).toBe(-1);
});

test('what a pump waits with is not collected while it waits', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let waitedWith: WeakRef<Uint8Array> | null = null;
  const poll = libc.poll.async.bind(libc.poll);
  const spy = vi.spyOn(libc.poll, 'async').mockImplementation((descriptors, ...rest) => {
    waitedWith = new WeakRef(descriptors);
    poll(descriptors, ...rest);
  });
  const pump = new Pump(() => {});
  while (waitedWith === null) await setImmediate();
  spy.mockRestore();
  for (let turn = 0; turn < 5; turn++) {
    await setImmediate();
    collect();
  }
  expect((waitedWith as WeakRef<Uint8Array>).deref()?.length).toBe(8);
  pump.close();
});
