import { X509Certificate } from 'node:crypto';
import { EventEmitter, getEventListeners } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { NodeAddress } from '#cluster/members/membership.js';
import { PeerClient } from '#cluster/peers/peer-client.js';
import { fingerprintOf } from '#cluster/peers/peer-identity.js';
import { Peers } from '#cluster/peers/peers.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';

const certificates = { n2: selfSigned('n2').cert, n3: selfSigned('n3').cert, n4: selfSigned('n4').cert };
const addressOf = (id: keyof typeof certificates, port: number): NodeAddress => ({
  id,
  address: `10.0.0.1:${port}`,
  certificates: [fingerprintOf(certificates[id])],
});
const registered = [addressOf('n2', 2), addressOf('n3', 3)].map((node) => ({
  ...node,
  ...{ identity: '', version: '', since: '' },
}));
const derOf = (id: keyof typeof certificates): Buffer => new X509Certificate(certificates[id]).raw;

/** Returns what node `n1` uses to reach the other nodes. `members` reads their addresses from etcd. */
const peersWith = (members: () => Promise<readonly NodeAddress[]>): Peers =>
  new Peers({ self: 'n1', client: {} as PeerClient, members, registered: async () => registered });
const addressesOf = async (peers: Peers) => (await peers.others()).map(({ id, address }) => [id, address?.address]);

describe('the other nodes that a node knows', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('while etcd can be reached, a node knows all registered nodes, and the addresses of those that are members', async () => {
    const peers = peersWith(async () => [addressOf('n2', 22)]);
    expect(await addressesOf(peers)).toEqual([
      ['n2', '10.0.0.1:22'],
      ['n3', undefined],
    ]);
  });

  test('while etcd is away, a node knows the registered addresses of the other nodes, before and after its first read of etcd', async () => {
    let isAway = true;
    const peers = peersWith(async () => {
      if (isAway) throw new Error('etcd is away');
      return [];
    });
    const known = [
      ['n2', '10.0.0.1:2'],
      ['n3', '10.0.0.1:3'],
    ];
    expect(await addressesOf(peers)).toEqual(known);
    isAway = false;
    vi.advanceTimersByTime(1_001);
    expect(await addressesOf(peers)).toEqual([
      ['n2', undefined],
      ['n3', undefined],
    ]);
    isAway = true;
    vi.advanceTimersByTime(1_001);
    expect(await addressesOf(peers)).toEqual(known);
  });

  test('a node uses the registered addresses of the other nodes 0.5 s after etcd has stopped responding', async () => {
    vi.useRealTimers();
    const peers = peersWith(() => new Promise(() => {}));
    const began = performance.now();
    expect((await addressesOf(peers))[0]).toEqual(['n2', '10.0.0.1:2']);
    expect(performance.now() - began).toBeGreaterThan(490);
  });

  test('a node recognises registered nodes by their certificates, and a new member by the certificate in etcd', async () => {
    const away = peersWith(async () => {
      throw new Error('etcd is away');
    });
    expect([await away.nodeWith(derOf('n3')), await away.nodeWith(derOf('n4'))]).toEqual(['n3', null]);
    const reached = peersWith(async () => [addressOf('n4', 4)]);
    expect([await reached.nodeWith(derOf('n3')), await reached.nodeWith(derOf('n4'))]).toEqual(['n3', 'n4']);
  });
});

describe('a request to a node', () => {
  const linksOf = (signal: AbortSignal): number => getEventListeners(signal, 'abort').length;

  test('a request to another node removes its listener from the AbortSignal of the caller after the response or a failure', async () => {
    let isOpen = false;
    const response = new EventEmitter() as IncomingMessage;
    const open = async (): Promise<IncomingMessage> => {
      if (!isOpen) throw new Error('ECONNREFUSED');
      return response;
    };
    const sources = { self: 'n1', members: async () => registered, registered: async () => registered };
    const peers = new Peers({ ...sources, client: { open } as unknown as PeerClient });
    const { signal } = new AbortController();
    const request = { method: 'GET', path: '/' } as const;
    await expect(peers.open('n2', request, signal)).rejects.toThrow('ECONNREFUSED');
    expect(linksOf(signal)).toBe(0);
    isOpen = true;
    await peers.open('n2', request, signal);
    expect(linksOf(signal)).toBe(1);
    response.emit('close');
    expect(linksOf(signal)).toBe(0);
  });

  test('a request to another node that cannot be sent leaves no listener at the AbortSignal of the caller', async () => {
    const client = new PeerClient(() => ({ ca: null, ...selfSigned('n1') }));
    const { signal } = new AbortController();
    const node = { id: 'n2', address: '127.0.0.1:1', certificates: [] };
    await expect(client.json(node, '/', signal)).rejects.toThrow('ECONNREFUSED');
    await expect.poll(() => linksOf(signal)).toBe(0);
  });

  test('a request to another node is refused at once if the AbortSignal of the caller is already aborted', async () => {
    const open = vi.fn(async (_: unknown, { signal }: { readonly signal: AbortSignal }) => {
      signal.throwIfAborted();
    });
    const sources = { self: 'n1', members: async () => registered, registered: async () => registered };
    const peers = new Peers({ ...sources, client: { open } as unknown as PeerClient });
    await expect(peers.open('n2', { method: 'GET', path: '/' }, AbortSignal.abort())).rejects.toThrow('aborted');
  });
});
