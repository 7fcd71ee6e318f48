import { once } from 'node:events';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';
import { Descriptors } from '#libc/descriptors.js';
import { openReceiver, openSocket } from '#sockets/socket-options.js';
import { Pump } from '#sockets/udp/pump.js';
import { UdpPort } from '#sockets/udp/udp-port.js';
import { ProgressClock } from '#test/progress-clock.js';

const LOOPBACK = 0x7f000001;
/** The source text of a worker thread that sends the current time to a UDP port every 10 ms. */
const SENDER = `
const { createSocket } = require('node:dgram');
const { workerData } = require('node:worker_threads');
const { port, rounds, origin } = workerData;
const socket = createSocket('udp4');
let round = 0;
const sending = setInterval(() => {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(performance.timeOrigin + performance.now() - origin);
  socket.send(bytes, port, '127.0.0.1');
  if (++round < rounds) return;
  clearInterval(sending);
  setTimeout(() => socket.close(), 20);
}, 10);
`;

const nobody = { onDatagram: () => {}, onError: () => {} };

test('a UDP receive loop (`Pump`) that is closed before its first wait does not close descriptors that are opened later', async () => {
  const pump = new Pump(() => {});
  pump.close();
  const taken = Array.from({ length: 8 }, () => openSync('/dev/null', 'r'));
  for (let turn = 0; turn < 20; turn++) await setImmediate();
  const open = taken.map((fd) => fstatSync(fd).isCharacterDevice());
  for (const fd of taken) closeSync(fd);
  expect(open).toEqual(taken.map(() => true));
});

test('a UDP receive loop (`Pump`) records each of its open file descriptors in `Descriptors`, and removes a closed descriptor', async () => {
  const descriptors = new Descriptors();
  const held = (): number => new Uint8Array(descriptors.shared).filter((byte) => byte === 1).length;
  const pump = new Pump(() => {}, descriptors);
  const ports = [1, 2, 3].map(() => new UdpPort(pump, openSocket('udp', { mark: 0 }), nobody));
  expect(held()).toBe(4);
  ports[0]?.close();
  expect(held()).toBe(3);
  pump.close();
  while (held() > 0) await setImmediate();
});

test('`Descriptors.closeAll` closes the file descriptors that another object has recorded in the same shared memory', () => {
  const given = new Descriptors();
  const fd = openSync('/dev/null', 'r');
  given.hold(fd);
  new Descriptors(given.shared).closeAll();
  expect(() => fstatSync(fd)).toThrow('EBADF');
  expect(new Uint8Array(given.shared).indexOf(1)).toBe(-1);
});

/**
 * The maximum duration of one wait of the pump in milliseconds. It is much longer than the other delays in
 * the test.
 */
const WAIT_MS = 300;

test('an idle UDP receive loop (`Pump`) waits in a system call, and the wait ends as soon as the event loop has work', async () => {
  const pump = new Pump(() => {}, undefined, WAIT_MS);
  await setTimeout(2 * WAIT_MS);
  const before = pump.iterations;
  await setTimeout(2 * WAIT_MS);
  // A pump that does not wait in a system call would make tens of thousands of turns.
  expect(pump.iterations - before).toBeLessThan(200);
  const { port1, port2 } = new MessageChannel();
  const clock = new ProgressClock();
  for (let round = 0; round < 20; round++) {
    const heard = once(port2, 'message');
    port1.postMessage(null);
    await heard;
  }
  expect(clock.ms()).toBeLessThan(10 * WAIT_MS);
  port1.close();
  pump.close();
});

/**
 * This UDP port is below the default range of ephemeral ports (32768 to 60999), so the kernel assigns it to
 * no other socket.
 */
const PORT = 20_353;

test('a waiting UDP receive loop (`Pump`) gets a datagram when it arrives, not only at the end of the wait', async () => {
  const pump = new Pump(() => {}, undefined, 10 * WAIT_MS);
  const took: number[] = [];
  const port = new UdpPort(pump, openReceiver({ address: LOOPBACK, port: PORT }, { mark: 0 }), {
    ...nobody,
    onDatagram: (bytes) => took.push(performance.now() - Buffer.from(bytes).readDoubleLE()),
  });
  // Another thread must send the datagrams, because this thread is blocked in a system call while the pump
  // waits.
  const sender = new Worker(SENDER, {
    eval: true,
    workerData: { port: PORT, rounds: 50, origin: performance.timeOrigin },
  });
  await once(sender, 'exit');
  port.close();
  pump.close();
  expect(took.length).toBe(50);
  // The sender runs for 500 ms. If the pump received the datagrams only afterwards, half of the datagrams
  // would be late by at least 250 ms.
  expect(took.sort((one, other) => one - other)[25]).toBeLessThan(100);
});
