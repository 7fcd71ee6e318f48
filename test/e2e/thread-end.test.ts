import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { check, libc } from '#libc/libc.js';
import { SPLICE_ENTRY_BYTES, SPLICE_KEY_BYTES } from '#splicing/layout.js';
import { eventually } from '#test/eventually.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { endThread } from './end-thread.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';
import type { Answer } from './tcp-peer.js';
import { Talkers, transferBoth } from './tcp-peers.js';

const PORTS = { offloaded: 443, spliced: 444, intercepted: 445, denied: 446 } as const;
const MB = 1_000_000;
/** Time in milliseconds within which a new thread opens all its file descriptors. */
const SETTLED_MS = 500;
const CA = '/api/v1/settings/tls-intercept-ca';
const PLANE = 'node/service-plane.worker.cjs';
const SPLICING = 'node/splice.worker.cjs';
/**
 * A python3 program with the arguments `ADDRESS PORT HELLO_FILE`. It connects repeatedly until its standard
 * input ends, and prints `heard` after the first accepted connection.
 */
const KNOCKING = `
import select, socket, sys
hello, heard = open(sys.argv[3], 'rb').read(), False
while not select.select([sys.stdin], [], [], 0.005)[0]:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5) as s:
            s.sendall(hello)
            if not heard: print('heard', flush=True)
            heard = True
            s.recv(1)
    except OSError: pass
`;
let rig: InspectedRig;
let offloaded: Talkers;
let spliced: Talkers;
let caFile: string;
let fresh: Held;
beforeAll(async () => {
  rig = await createInspectedRig('thread-end', { workers: 1 });
  offloaded = await Talkers.at(rig, PORTS.offloaded);
  spliced = await Talkers.at(rig, PORTS.spliced);
  await rig.web(PORTS.intercepted, rig.certificates.good);
  await rig.node.request('POST', `${CA}/generate`);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
  const decided = { proto: 'tcp', dst_ports: [PORTS.offloaded, PORTS.spliced], tls: { sni: [SERVER_NAME] } };
  const http = { request: { methods: ['GET'] } };
  const intercepted = { proto: 'tcp', dst_ports: [PORTS.intercepted], tls: { mode: 'intercept', http } };
  const another = { proto: 'tcp', dst_ports: [PORTS.denied], tls: { sni: ['another.test'] } };
  await rig.put(policyOf([decided, intercepted, another].map((match) => ({ match }))));
  await rig.node.ready();
  // The first call of `fell` starts the inspector of the node, whose descriptors stay open. So the test
  // counts descriptors only after this call.
  await fell(SPLICING);
  fresh = await eventually(async () => {
    const now = held();
    expect(now.raw).toBe(1);
    // A new thread may still open descriptors during a count. So the test accepts a count only if a second
    // count is equal.
    await setTimeout(SETTLED_MS);
    expect(held()).toEqual(now);
    return now;
  }, soon);
});
afterEach(() => Promise.all([offloaded.end(), spliced.end()]));
afterAll(() => rig?.remove());

/** Returns the states of the statechart servicePlane right after each end of a service-plane thread. */
async function deaths(): Promise<readonly unknown[]> {
  const { body } = await rig.node.request('GET', '/api/v1/debug/statecharts');
  type Chart = {
    readonly name: string;
    readonly recent: readonly { readonly event: string; readonly value: unknown }[];
  };
  const recent = (body as { readonly charts: readonly Chart[] }).charts.find(
    ({ name }) => name === 'servicePlane',
  )?.recent;
  return (recent ?? []).filter(({ event }) => event === 'service_plane.died').map(({ value }) => value);
}
const FAILING = { running: 'backing_off' };

/** Ends the thread that runs `file`. Resolves when the service plane inspects connections again. */
async function fell(file: string): Promise<void> {
  const before = await deaths();
  await endThread(rig, file, 'interrupt');
  await eventually(async () => expect(await deaths()).toEqual([...before, FAILING]), soon);
  await eventually(async () => {
    const { body } = await rig.node.request('GET', '/ready');
    const { checks } = body as { readonly checks: readonly { readonly name: string; readonly state: string }[] };
    expect(checks.find(({ name }) => name === 'service_plane')?.state).toBe('inspecting');
  }, soon);
}
const soon = { timeout: 10_000, interval: 20 };

type Held = Readonly<Record<string, number>>;
/**
 * Returns the numbers of open file descriptors of the node by kind, of mapped BPF maps, and of raw sockets.
 * Other sockets are not counted, because API requests open and close them.
 */
function held(): Held {
  const folder = `/proc/${rig.node.pid}`;
  const targets = readdirSync(`${folder}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`${folder}/fd/${fd}`).replace(/:\[\d+\]$/, '')];
    } catch {
      return [];
    }
  });
  const mapped = readFileSync(`${folder}/maps`, 'utf8').match(/bpf-map/g) ?? [];
  const raw = readFileSync(`${folder}/net/raw`, 'utf8').trim().split('\n').slice(1);
  const counts: Record<string, number> = { mapped: mapped.length, raw: raw.length };
  for (const target of targets) if (target !== 'socket') counts[target] = (counts[target] ?? 0) + 1;
  return counts;
}

/** Returns '' if the node has closed the descriptor meanwhile. */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/**
 * Returns the number of entries in the BPF map of offloaded connections, which has one entry for each
 * direction.
 */
function entries(): number {
  const folder = `/proc/${rig.node.pid}/fdinfo`;
  const shape = new RegExp(`^key_size:\\t${SPLICE_KEY_BYTES}\\nvalue_size:\\t${SPLICE_ENTRY_BYTES}$`, 'm');
  const info = readdirSync(folder)
    .map((fd) => textOf(`${folder}/${fd}`))
    .find((text) => /^map_type:\t1$/m.test(text) && shape.test(text));
  const fd = check(
    'open what is offloaded',
    libbpf().bpf_map_get_fd_by_id(Number(/^map_id:\t(\d+)$/m.exec(info ?? '')?.[1])),
  );
  try {
    const key = new Uint8Array(SPLICE_KEY_BYTES);
    let count = 0;
    for (let from: Uint8Array | null = null; libbpf().bpf_map_get_next_key(fd, from, key) >= 0; from = key) count++;
    return count;
  } finally {
    libc.close(fd);
  }
}

/** Returns the list of TCP sockets of the node for inspected connections, as text of `ss`. */
async function sockets(): Promise<string> {
  const ours = [PORTS.offloaded, PORTS.spliced, PORTS.intercepted].flatMap((port) => [
    `sport = :${port}`,
    `dport = :${port}`,
  ]);
  const states = ['state', 'connected', 'exclude', 'time-wait'];
  return rig.topology.node.must('ss', '-Htn', ...states, `( ${ours.join(' or ')} )`);
}

/**
 * Opens an intercepted connection, and waits for the response to one request. `ended` resolves with the
 * output of the client.
 */
async function intercepted(): Promise<{ readonly ended: Promise<string> }> {
  const words = ['s_client', '-quiet', '-connect', `${ADDRESSES.server}:${PORTS.intercepted}`, '-CAfile', caFile];
  const child = rig.topology.client.start('openssl', [...words, '-verify_return_error', '-servername', SERVER_NAME]);
  let text = '';
  const heard = (chunk: Buffer): void => {
    text += chunk.toString();
  };
  child.stdout?.on('data', heard);
  child.stderr?.on('data', heard);
  const ended = once(child, 'exit').then(() => text);
  child.stdin?.write(`GET /one HTTP/1.1\r\nHost: ${SERVER_NAME}\r\n\r\n`);
  await expect.poll(() => text).toContain('"url":"/one"');
  return { ended };
}

/**
 * Starts a client that connects to a denied port repeatedly, and resolves after the first accepted
 * connection. `stop` ends the client, and returns the number of packets that reached the denied port of the
 * server.
 */
async function knock(): Promise<{ stop(): Promise<number> }> {
  const { client, server } = rig.topology;
  const count = `tcp dport ${PORTS.denied} counter`;
  await server.must(
    'nft',
    `add table ip seen; add chain ip seen in { type filter hook prerouting priority -400; }; add rule ip seen in ${count}`,
  );
  const child = client.start('/usr/bin/python3', [
    '-c',
    KNOCKING,
    ADDRESSES.server,
    String(PORTS.denied),
    spliced.helloFile,
  ]);
  await firstLine(child);
  const ended = once(child, 'exit');
  return {
    stop: async () => {
      child.stdin?.end();
      await ended;
      const passed = /counter packets (\d+)/.exec(await server.must('nft', 'list', 'table', 'ip', 'seen'))?.[1];
      await server.must('nft', 'delete table ip seen');
      return Number(passed);
    },
  };
}

test.each([
  ['a service-plane thread', PLANE, 'a thread of the service plane ended with exit code 7'],
  ['a splice thread', SPLICING, 'a splicing thread ended with exit code 7'],
])(
  'after a thread of the running node (%s) ends, all its connections are reset and freed, and the next thread inspects new connections',
  async (_, file, reason) => {
    const own = offloaded.nextPort();
    const busy = await offloaded.offloaded(own);
    const quiet = await spliced.connect();
    await transferBoth(quiet, 10_000);
    const read = await intercepted();
    expect(entries()).toBeGreaterThanOrEqual(2);
    const others = await knock();
    const sending = busy.client.ask('send', 100_000 * MB, 5);
    const ends = [busy.server.ask('take', 100_000 * MB), quiet.client.ask('take', 1), quiet.server.ask('take', 1)];

    await fell(file);
    expect(await rig.node.log()).toContain(
      `"reason":"${reason}","msg":"a thread of the TLS and HTTP inspection ended and was replaced; its connections were reset"`,
    );
    expect(await Promise.all([sending, ...ends])).toEqual(Array<Answer>(4).fill({ failed: 'ConnectionResetError' }));
    // The node closes the connection without a TLS close_notify. So the data may be truncated (RFC 8446,
    // 6.1), and the client must report an error.
    expect(await read.ended).toMatch(/unexpected eof|Connection reset/);

    expect(entries()).toBe(0);
    await expect.poll(held).toEqual(fresh);
    expect(await sockets()).toBe('');
    const again = await offloaded.offloaded(own);
    await transferBoth(again, MB);
    await intercepted();
    expect(await others.stop()).toBe(0);
  },
);
