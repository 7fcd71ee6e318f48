import { createSocket } from 'node:dgram';
import { fstatSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Address } from '#contracts/policy/policy-model.js';
import { libc } from '#libc/libc.js';
import { MSG_DONTWAIT } from '#libc/socket-numbers.js';
import { type ListeningSocket, ListeningSockets } from '#sockets/listening/listening-sockets.js';
import { duplicateSocket, isBoundTo, openListener, openReceiver } from '#sockets/socket-options.js';

const LOOPBACK = 0x7f00_0001;
/** Ports below the range of ephemeral ports, so that the kernel assigns them to no other socket. */
const [FIRST, SECOND] = [20_453, 20_454];
const udpAt = (port: number): ListeningSocket => ({ kind: 'udp', address: LOOPBACK, port, mark: 0 });
const tcpAt = (port: number): ListeningSocket => ({ kind: 'tcp', address: LOOPBACK, port, mark: 0 });
const NAME = `dns-udp-127.0.0.1-${FIRST}`;
const OTHER = `dns-udp-127.0.0.1-${SECOND}`;

class FakeStore {
  readonly stored = new Map<string, number>();
  store(name: string, fd: number): void {
    this.stored.set(name, fd);
  }
  remove(name: string): void {
    this.stored.delete(name);
  }
}

let store: FakeStore;
let sockets: ListeningSockets;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  store = new FakeStore();
  sockets = new ListeningSockets(store);
});
afterEach(() => {
  sockets.close('dns');
  vi.useRealTimers();
});

const used = async (): Promise<void> => {};
const isOpen = (fd: number): boolean => {
  try {
    return fstatSync(fd).isSocket();
  } catch {
    return false;
  }
};

describe('the listening sockets of a node', () => {
  test('a listening socket is stored with the service manager when it is opened, and is opened only if it is not stored', () => {
    const first = sockets.open('dns', [udpAt(FIRST), tcpAt(FIRST)]);
    expect(first.isKept).toBe(false);
    expect(Object.fromEntries(store.stored)).toEqual(first.descriptors);
    expect(Object.keys(first.descriptors)).toEqual([NAME, `dns-tcp-127.0.0.1-${FIRST}`]);
    const second = sockets.open('dns', [udpAt(FIRST), tcpAt(FIRST)]);
    expect(second).toEqual({ descriptors: first.descriptors, isKept: true });
  });

  test('an IPv6 address listens beside all IPv4 addresses, its name in the store has no colon, and the next process takes it over', () => {
    const at = (address: Address) => (['udp', 'tcp'] as const).map((kind) => ({ kind, address, port: FIRST, mark: 0 }));
    const { descriptors } = sockets.open('dns', [...at(0n), ...at(0)]);
    expect(Object.keys(descriptors)).toEqual(
      ['udp-..', 'tcp-..', 'udp-0.0.0.0', 'tcp-0.0.0.0'].map((name) => `dns-${name}-${FIRST}`),
    );
    const next = new ListeningSockets(
      store,
      new Map(Object.entries(descriptors).map(([name, fd]) => [name, duplicateSocket(fd)])),
    );
    sockets.close('dns');
    const taken = next.open('dns', [...at(0n), ...at(0)]);
    expect(taken.isKept).toBe(true);
    const udp = taken.descriptors[`dns-udp-..-${FIRST}`] ?? -1;
    expect([
      isBoundTo(udp, 'udp', { address: 0n, port: FIRST }),
      isBoundTo(udp, 'udp', { address: 1n, port: FIRST }),
    ]).toEqual([true, false]);
    next.close('dns');
  });

  test('listening sockets stay in the store of the service manager when their part of the node is closed', () => {
    const { descriptors } = sockets.open('dns', [udpAt(FIRST)]);
    sockets.close('dns');
    expect([...store.stored.keys()]).toEqual([NAME]);
    expect(isOpen(descriptors[NAME] ?? -1)).toBe(false);
  });

  test('the listening sockets in the store of the service manager do not change if one address cannot be bound', () => {
    const taken = openReceiver(udpAt(SECOND), { mark: 0 });
    const blocked = new ListeningSockets();
    try {
      expect(() => sockets.open('dns', [udpAt(FIRST), udpAt(SECOND)])).toThrow('EADDRINUSE');
      expect([...store.stored.keys()]).toEqual([]);
      blocked.open('dns', [udpAt(FIRST)]);
    } finally {
      blocked.close('dns');
      libc.close(taken);
    }
  });

  test('the listening sockets in the store of the service manager do not change if a part of the node refuses a change', async () => {
    sockets.open('dns', [udpAt(FIRST)]);
    const refused = sockets.change('dns', [udpAt(SECOND)], () => Promise.reject(new Error('refused')));
    await expect(refused).rejects.toThrow('refused');
    vi.advanceTimersByTime(10_000);
    expect([...store.stored.keys()]).toEqual([NAME]);
  });

  test('removed listening sockets are closed after three seconds; a change back within this time uses the same sockets again', async () => {
    const { descriptors } = sockets.open('dns', [udpAt(FIRST)]);
    await sockets.change('dns', [udpAt(SECOND)], used);
    vi.advanceTimersByTime(2_900);
    expect([...store.stored.keys()]).toEqual([NAME, OTHER]);
    await sockets.change('dns', [udpAt(FIRST)], async (now) => expect(now).toEqual(descriptors));
    vi.advanceTimersByTime(3_100);
    expect([...store.stored.keys()]).toEqual([NAME]);
  });
});

describe('a socket of the previous process', () => {
  const unused: string[] = [];
  beforeEach(() => void unused.splice(0));
  const next = (...inherited: [string, number][]) =>
    new ListeningSockets(store, new Map(inherited), (name) => unused.push(name));

  test('a listening socket of the previous process is used again, with the datagrams that wait in it', async () => {
    const { descriptors } = sockets.open('dns', [udpAt(FIRST)]);
    const kept = duplicateSocket(descriptors[NAME] ?? -1);
    sockets.close('dns');
    const client = createSocket('udp4');
    await new Promise((resolve) => client.send('waiting', FIRST, '127.0.0.1', resolve));
    sockets = next([NAME, kept]);
    expect(sockets.open('dns', [udpAt(FIRST)])).toEqual({ descriptors: { [NAME]: kept }, isKept: true });
    const bytes = Buffer.alloc(16);
    expect(bytes.toString('utf8', 0, libc.recv(kept, bytes, bytes.length, MSG_DONTWAIT))).toBe('waiting');
    expect(unused).toEqual([]);
    client.close();
  });

  test('a listening socket of the previous process is closed and removed from the store if the configuration has no such address', () => {
    const left = openReceiver(udpAt(FIRST), { mark: 0 });
    store.store(NAME, left);
    sockets = next([NAME, left]);
    sockets.open('dns', [udpAt(SECOND)]);
    // The new socket may get the number of the closed descriptor.
    expect([unused, [...store.stored.keys()], isBoundTo(left, 'udp', udpAt(FIRST))]).toEqual([[NAME], [OTHER], false]);
  });

  test('a listening socket of the previous process with a number in its name is closed before the same address is bound without a number', () => {
    const numbered = `dns-tcp-127.0.0.1-${FIRST}-0`;
    sockets = next([numbered, openListener(tcpAt(FIRST), { mark: 0, isShared: true })]);
    expect(sockets.open('dns', [tcpAt(FIRST)]).isKept).toBe(false);
    expect(unused).toEqual([numbered]);
  });

  test('a listening socket of the previous process is closed, and opened again, if its address differs from its name', () => {
    const wrong = openReceiver(udpAt(SECOND), { mark: 0 });
    sockets = next([NAME, wrong]);
    expect(sockets.open('dns', [udpAt(FIRST)]).isKept).toBe(false);
    expect(unused).toEqual([NAME]);
  });
});
