import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { helloOfNode } from '#test/service-plane/tls/recorded-hello.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';
import { SPLICED_ENDS } from './spliced-ends.js';

type Told = Readonly<Record<string, unknown>>;
/** Collects the output of a process that prints one JSON value per line. */
class Lines {
  readonly #told: Told[] = [];
  constructor(readonly child: ChildProcess) {
    if (child.stdout === null) throw new Error('it has no output');
    createInterface(child.stdout).on('line', (line) => this.#told.push(JSON.parse(line) as Told));
  }

  /** Waits for `count` lines, removes them from the buffer, and returns them. */
  async next(count = 1): Promise<readonly Told[]> {
    await expect.poll(() => this.#told.length).toBeGreaterThanOrEqual(count);
    return this.#told.splice(0, count);
  }
}

const PORT = 443;
const MB = 1_000_000;
let rig: InspectedRig;
let server: Lines;
let helloFile: string;
beforeAll(async () => {
  rig = await createInspectedRig('spliced');
  const hello = await helloOfNode({ servername: SERVER_NAME });
  helloFile = join(rig.node.folder, 'hello');
  await writeFile(helloFile, hello);
  const child = rig.topology.server.start('/usr/bin/python3', [
    '-c',
    SPLICED_ENDS,
    'serve',
    String(PORT),
    `${hello.length}`,
  ]);
  await firstLine(child);
  server = new Lines(child);
  await rig.put(policyOf([tls(SERVER_NAME)]));
  await rig.node.ready();
});
afterAll(() => rig?.remove());

const tls = (sni: string) => ({ match: { proto: 'tcp', dst_ports: [PORT], tls: { sni: [sni] } } });
function dial(what: string, count = 0, times = 1): Lines {
  const words = ['dial', ADDRESSES.server, PORT, helloFile, what, count, times].map(String);
  return new Lines(rig.topology.client.start('/usr/bin/python3', ['-c', SPLICED_ENDS, ...words]));
}
async function digest(count: number, of: 'client' | 'server'): Promise<string> {
  const words = ['-c', SPLICED_ENDS, 'digest', String(count), of === 'client' ? '1' : '2'];
  return (await rig.topology.client.must('/usr/bin/python3', ...words)).trim();
}
const NOTHING = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';
const rssMb = (): number =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${rig.node.pid}/status`, 'utf8'))?.[1]) / 1_024;
/**
 * Returns the list of established sockets of the node for connections between client and server, as text of
 * `ss`.
 */
const sockets = (): Promise<string> =>
  rig.topology.node.must('ss', '-Htn', 'state', 'established', `( sport = :${PORT} or dport = :${PORT} )`);

test('200 MB pass a spliced (splice(2)) connection unchanged in each direction', async () => {
  const what = 'both';
  const client = dial(what, 200 * MB);
  const got = 200 * MB;
  expect(await client.next()).toEqual([{ side: 'client', what, got, digest: await digest(got, 'server'), end: 'end' }]);
  expect(await server.next()).toEqual([{ side: 'server', what, got, digest: await digest(got, 'client'), end: 'end' }]);
});

test.each(['client_first', 'server_first'])(
  'after one side of a spliced (splice(2)) connection has sent FIN, data still passes in the other direction (order: %s)',
  async (what) => {
    const client = dial(what, 3 * MB);
    const got = 3 * MB;
    expect(await client.next()).toEqual([
      { side: 'client', what, got, digest: await digest(got, 'server'), end: 'end' },
    ]);
    expect(await server.next()).toEqual([
      { side: 'server', what, got, digest: await digest(got, 'client'), end: 'end' },
    ]);
  },
);

test('a RST from either side of a spliced (splice(2)) connection resets the other side', async () => {
  dial('client_resets');
  expect(await server.next()).toEqual([
    { side: 'server', what: 'client_resets', got: 0, digest: NOTHING, end: 'reset' },
  ]);
  const what = 'server_resets';
  expect(await dial(what).next(2)).toEqual([
    { side: 'client', what, state: 'open' },
    { side: 'client', what, got: 0, digest: NOTHING, end: 'reset' },
  ]);
});

test('if one side of a spliced (splice(2)) connection does not read, the sender stops before 40 MB, and the node grows by less than 40 MiB of memory', async () => {
  const before = rssMb();
  const client = dial('slow', 300 * MB);
  const [first] = await client.next();
  expect(first).toEqual({ side: 'client', what: 'slow', taken: expect.any(Number) as number });
  expect(first?.taken).toBeLessThan(40 * MB);
  expect(rssMb() - before).toBeLessThan(40);
  server.child.stdin?.write('\n');
  const sent = 300 * MB;
  const said = await digest(sent, 'client');
  expect(await client.next()).toEqual([{ side: 'client', what: 'slow', sent, digest: said, end: 'end' }]);
  expect(await server.next()).toEqual([{ side: 'server', what: 'slow', got: sent, digest: said, end: 'end' }]);
  expect(rssMb() - before).toBeLessThan(40);
});

test('spliced (splice(2)) connections that a new policy denies stay open and are counted; they end when a later policy lets their FIN pass', async () => {
  const client = dial('hold', 0, 3);
  const what = 'hold';
  expect(await client.next(3)).toEqual(Array(3).fill({ side: 'client', what, state: 'open' }));
  const suspended = async () =>
    ((await rig.node.request('GET', '/api/v1/stats')).body as { tls: { suspended: number } }).tls.suspended;
  await rig.put(policyOf([tls('another.test')]));
  await expect.poll(suspended).toBe(3);
  client.child.kill('SIGKILL');
  await rig.put(policyOf([tls(SERVER_NAME)]));
  expect(await server.next(3)).toEqual(Array(3).fill({ side: 'server', what, got: 0, digest: NOTHING, end: 'end' }));
  expect(await suspended()).toBe(0);
});

test('two hundred parallel spliced (splice(2)) connections each receive their own data', async () => {
  const what = 'both';
  const got = MB / 2;
  const client = dial(what, got, 200);
  const expected = (of: 'client' | 'server', digest: string) =>
    Array(200).fill({ side: of, what, got, digest, end: 'end' });
  expect(await client.next(200)).toEqual(expected('client', await digest(got, 'server')));
  expect(await server.next(200)).toEqual(expected('server', await digest(got, 'client')));
});

test('closed spliced (splice(2)) connections leave no file descriptor open in the node', async () => {
  const descriptors = (): Promise<string> => rig.topology.node.must('sh', '-c', `ls /proc/${rig.node.pid}/fd | wc -l`);
  const before = Number(await descriptors());
  const client = dial('both', 1_000, 50);
  await client.next(50);
  await server.next(50);
  await expect.poll(sockets).toBe('');
  await expect.poll(async () => Number(await descriptors())).toBeLessThanOrEqual(before);
});
