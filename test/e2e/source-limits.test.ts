import type { ChildProcess } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';

const ROOM = 16;
const OF_SOURCE = 4;
const soon = { timeout: 5_000 };

let rig: InspectedRig;
beforeAll(async () => {
  rig = await createInspectedRig(
    'sources',
    { workers: 1, max_connections: ROOM, max_connections_per_source: OF_SOURCE },
    { sections: { api: { max_connections_per_source: OF_SOURCE } } },
  );
  await rig.web(443, rig.certificates.good);
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await expect.poll(() => connections(), soon).toBe(0);
});
afterAll(() => rig?.remove());

const children: ChildProcess[] = [];
/**
 * A python3 program that opens connections and sends nothing. The program waits until the node has closed no
 * connection for 0.5 s, and prints the number of connections that are still open.
 */
const SILENT = `
import select, socket, sys
source, host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
kept = []
for _ in range(count):
    try: kept.append(socket.create_connection((host, port), 5, (source, 0)))
    except ConnectionError: pass
closed = set()
while True:
    ready = [s for s in select.select([s for s in kept if s not in closed], [], [], 0.5)[0]]
    if not ready: break
    closed.update(ready)
print(len(kept) - len(closed), flush=True)
sys.stdin.read()`;
async function silent(
  from: 'client' | 'node',
  source: string,
  [host, port]: readonly [string, number],
  count: number,
): Promise<number> {
  const child = rig.topology[from].start('/usr/bin/python3', ['-c', SILENT, source, host, String(port), String(count)]);
  children.push(child);
  return Number(await firstLine(child));
}

const WEB = [ADDRESSES.server, 443] as const;
const passes = async (source: string): Promise<boolean> =>
  (await rig.dial(443, ['-bind', `${source}:0`])).text.includes('HTTP/1.1 200 OK');
const tls = async (): Promise<{ connections: number; refused: Readonly<Record<string, number>> }> =>
  ((await rig.node.request('GET', '/api/v1/stats')).body as { tls: Awaited<ReturnType<typeof tls>> }).tls;
const connections = async (): Promise<number> => (await tls()).connections;
const findings = async (): Promise<readonly object[]> => {
  const { body } = await rig.node.request('GET', '/api/v1/audit/findings?finding_type=tls_deny');
  return (body as { items: object[] }).items;
};
const BOTH = { sources: { ips: [ADDRESSES.client, ADDRESSES.clientOther] } };
const rule = (sni: string, more: Readonly<Record<string, unknown>> = {}) =>
  policyOf([{ match: { proto: 'tcp', dst_ports: [443], tls: { sni: [sni] } }, ...more }], BOTH);

/** Matches the finding of a connection that the service plane refused because of the limit of its source. */
const refusalOfSource = (action: 'allow' | 'deny'): unknown =>
  expect.objectContaining({
    src_ip: ADDRESSES.client,
    reason: 'too_many_connections_of_source',
    effective_action: action,
  });

describe('service plane', () => {
  test('the service plane resets connections of a source beyond its limit, reports a finding, and inspects connections of other sources', async () => {
    await rig.put(rule(SERVER_NAME));
    await rig.node.ready();
    expect(await silent('client', ADDRESSES.client, WEB, ROOM)).toBe(OF_SOURCE);
    expect(await passes(ADDRESSES.client)).toBe(false);
    expect(await passes(ADDRESSES.clientOther)).toBe(true);
    const { refused } = await tls();
    expect(refused).toEqual({ too_many_connections_of_source: ROOM - OF_SOURCE + 1 });
    await expect.poll(findings, soon).toContainEqual(refusalOfSource('deny'));
  });

  test('in audit mode, the service plane passes twice the limit of connections of a source, half of them uninspected, and resets more', async () => {
    await rig.put(rule(SERVER_NAME, { mode: 'audit' }));
    expect(await silent('client', ADDRESSES.client, WEB, ROOM)).toBe(2 * OF_SOURCE);
    expect(await passes(ADDRESSES.client)).toBe(false);
    expect(await passes(ADDRESSES.clientOther)).toBe(true);
    await expect.poll(findings, soon).toContainEqual(refusalOfSource('allow'));
  });

  test('the service plane accepts new connections of a source at the limit after earlier connections of this source have closed', async () => {
    await rig.put(rule(SERVER_NAME));
    for (let round = 0; round < 3; round++) {
      expect(await silent('client', ADDRESSES.client, WEB, ROOM)).toBe(OF_SOURCE);
      for (const child of children.splice(0)) child.kill('SIGKILL');
      await expect.poll(connections, soon).toBe(0);
      expect(await passes(ADDRESSES.client)).toBe(true);
      await expect.poll(connections, soon).toBe(0);
    }
  });
});

test('the API closes connections of one client address beyond the limit per source, and counts the closed connections', async () => {
  const api = ['127.0.0.1', 8080] as const;
  expect(await silent('node', '127.0.0.5', api, ROOM)).toBe(OF_SOURCE);
  expect(await silent('node', '127.0.0.6', api, 1)).toBe(1);
  const { text } = await rig.node.request('GET', '/metrics');
  expect(text).toContain(`weir_api_connections_refused_total ${ROOM - OF_SOURCE}\n`);
});
