import type { ChildProcess } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { firstLine } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { CHROMIUM_HELLO } from '#test/service-plane/tls/chromium-hello.js';
import { byServerName, createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';
import { CHANGED, FIRST, RETRYING, SAME, type Sent, send, WITHOUT_COOKIE } from './second-hellos.js';

/** Maximum number of inspected connections: the setting `max_connections` of the node. */
const ROOM = 16;
let rig: InspectedRig;
beforeAll(async () => {
  rig = await createInspectedRig('metadata', { workers: 1, max_connections: ROOM });
  await rig.web(443, rig.certificates.good);
});
afterAll(() => rig?.remove());

const tls = (block: Readonly<Record<string, unknown>>, more: Readonly<Record<string, unknown>> = {}) => ({
  match: { proto: 'tcp', dst_ports: [443], tls: block },
  ...more,
});
const passes = async (...options: string[]): Promise<boolean> =>
  (await rig.dial(443, options)).text.includes('HTTP/1.1 200 OK');

test('an allow rule with a server name passes connections with this server name, and no connection with another or without a server name', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  await rig.node.ready();
  expect(await byServerName(passes)).toEqual({ own: true, ownByTls12: true, other: false, none: false });
});

test('a ClientHello of Chromium with a GREASE ECH extension is decided by its server name', async () => {
  const send443 = () => send(rig, 443, { first: CHROMIUM_HELLO, next: [] });
  await rig.put(policyOf([tls({ sni: ['www.example.com'] })]));
  expect(await send443()).toBe('hello');
  await rig.put(policyOf([tls({ sni: ['www.example.com'] }, { action: 'deny' }), WEB]));
  expect(await send443()).toBe('reset');
  await rig.put(policyOf([tls({ sni: ['other.test'] }, { action: 'deny' }), WEB]));
  expect(await send443()).toBe('hello');
});

test('the server receives an inspected connection from the address and port of the client', async () => {
  const { client, server } = rig.topology;
  const program = `
import socket
s=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',444)); s.listen(5); print('up',flush=True)
c,a=s.accept(); print(a[0],a[1],flush=True); c.recv(10); c.close()`;
  const listening = server.start('/usr/bin/python3', ['-c', program]);
  let said = '';
  listening.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  await expect.poll(() => said).toContain('up');
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [444], tls: {} } }]));
  await client.run('sh', '-c', 'timeout 3 openssl s_client -bind 10.77.1.2:40123 -connect 10.77.2.2:444 </dev/null');
  expect(said).toContain('10.77.1.2 40123');
});

test('a rule with server_cn decides TLS 1.2 connections by the server certificate, and TLS 1.3 connections by tls13_uninspectable', async () => {
  // `upstream_ca` of the node has the root of the server.
  await rig.put(policyOf([tls({ server_cn: [SERVER_NAME] })]));
  expect(await passes('-tls1_2')).toBe(true);
  const { rootPem } = rig.certificates;
  await rig.put(policyOf([tls({ server_cn: [SERVER_NAME], trust_anchors_pem: [rootPem] })]));
  expect(await passes('-tls1_2')).toBe(true);
  expect(await passes('-tls1_3')).toBe(false);
  await rig.put(policyOf([tls({ server_cn: ['other.test'], trust_anchors_pem: [rootPem] })]));
  expect(await passes('-tls1_2')).toBe(false);
  await rig.put(policyOf([tls({ server_cn: ['x.test'], trust_anchors_pem: [rootPem], tls13_uninspectable: 'allow' })]));
  expect(await passes('-tls1_3')).toBe(true);
});

test('a connection without TLS matches a deny rule with tls, but no allow rule with tls; a connection without a server name matches a deny rule with sni', async () => {
  const program = `
import socket
s=socket.create_connection(('10.77.2.2',80)); s.settimeout(4); s.sendall(b'hello'); print(s.recv(100))`;
  const echoed = async (): Promise<boolean> =>
    (await rig.topology.client.run('/usr/bin/python3', '-c', program)).stdout.includes('hello');
  const plain = (block: Readonly<Record<string, unknown>>) => ({ match: { proto: 'tcp', dst_ports: [80], ...block } });
  await rig.put(policyOf([plain({ tls: {} }), plain({})]));
  expect(await echoed()).toBe(true);
  await rig.put(policyOf([{ ...plain({ tls: {} }), action: 'deny' }, plain({})]));
  expect(await echoed()).toBe(false);
  await rig.put(
    policyOf([tls({ sni: ['other.test'] }, { action: 'deny' }), { match: { proto: 'tcp', dst_ports: [443] } }]),
  );
  expect(await passes()).toBe(true);
  expect(await passes('-noservername')).toBe(false);
});

test('a connection is reset if the server does not answer the ClientHello with TLS, so that no other protocol passes', async () => {
  const program = `
import socket
s=socket.create_connection(('10.77.2.2',80)); s.settimeout(4); s.sendall(bytes.fromhex('${FIRST.toString('hex')}'))
try:
    while s.recv(100): pass
    print('end')
except ConnectionError: print('reset')`;
  const echoed = async (): Promise<string> =>
    (await rig.topology.client.run('/usr/bin/python3', '-c', program)).stdout.trim();
  await rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [80], tls: { sni: [SERVER_NAME] } } }]));
  expect(await echoed()).toBe('reset');
});

test('a connection that matches a deny rule in audit mode passes', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] }, { action: 'deny', mode: 'audit' })]));
  expect(await passes()).toBe(true);
  await rig.put(policyOf([tls({ sni: ['other.test'] }, { action: 'deny', mode: 'audit' })]));
  expect(await passes()).toBe(false);
});

test('POST /api/v1/policy/explain predicts the verdict of real TLS connections', async () => {
  const { rootPem } = rig.certificates;
  const good = { server_cn: SERVER_NAME };
  const flows: readonly (readonly [string[], Readonly<Record<string, unknown>>])[] = [
    [[], { sni: SERVER_NAME }],
    [['-tls1_2'], { sni: SERVER_NAME, tls: { version: '1.2', ...good } }],
    [['-servername', 'other.test'], { sni: 'other.test' }],
    [['-servername', 'other.test', '-tls1_2'], { sni: 'other.test', tls: { version: '1.2', ...good } }],
    [['-noservername'], {}],
  ];
  const policies = [
    [tls({ sni: [SERVER_NAME] })],
    [tls({ sni: [SERVER_NAME] }, { action: 'deny' }), { match: {} }],
    [tls({ sni: 'other' }, { action: 'deny', mode: 'audit' }), tls({ sni: [SERVER_NAME] })],
    [tls({ server_cn: [SERVER_NAME], trust_anchors_pem: [rootPem] })],
    [tls({ server_cn: [SERVER_NAME], trust_anchors_pem: [rootPem], tls13_uninspectable: 'allow' })],
    [tls({ server_cn: ['x.test'], trust_anchors_pem: [rootPem] }), tls({ sni: [SERVER_NAME] })],
    [{ match: { proto: 'tcp', dst_ports: [443] } }],
    [{ match: { proto: 'udp' } }],
    [tls({ mode: 'intercept', http: { request: { methods: ['GET'] } } })],
  ];
  for (const rules of policies) {
    await rig.put(policyOf(rules));
    const seen = await Promise.all(flows.map(([options]) => passes(...options)));
    const said = await Promise.all(flows.map(async ([, given]) => (await explain(given)).effective_action === 'allow'));
    expect([rules, said]).toEqual([rules, seen]);
  }
});

test('POST /api/v1/policy/explain lists in `unknown` the TLS fields that the request omits and that could change the verdict', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] }), tls({ server_cn: ['x.test'] })]));
  expect((await explain({})).unknown).toEqual(['sni', 'tls.server_cn']);
  expect((await explain({ sni: SERVER_NAME })).unknown).toEqual([]);
  expect((await explain({ sni: 'other.test' })).unknown).toEqual(['tls.server_cn']);
});

async function explain(said: Readonly<Record<string, unknown>>) {
  const flow = { src: ADDRESSES.client, dst: ADDRESSES.server, proto: 'tcp', src_port: 40_000, dst_port: 443 };
  const { body, text } = await rig.node.request('POST', '/api/v1/policy/explain', { ...flow, ...said });
  expect(text).toContain('effective_action');
  return body as { readonly effective_action: string; readonly unknown: readonly string[] };
}

/** Opens a TLS connection, and sends no HTTP request. Returns the `openssl` process. */
async function begun(): Promise<ChildProcess> {
  const words = ['s_client', '-connect', '10.77.2.2:443', '-servername', SERVER_NAME, '-quiet', '-no_ign_eof'];
  const child = rig.topology.client.start('openssl', words);
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  // The node may close the connection before the test writes. The write then fails, and the test ignores the
  // error.
  child.stdin?.on('error', () => {});
  await expect.poll(() => said).toContain('verify');
  return child;
}

/**
 * Opens a TLS connection, runs `change`, and sends a request. Returns `open` if the client gets a response,
 * `closed` if the connection was closed, and `silent` if neither happens.
 */
async function held(change: () => Promise<void>): Promise<'open' | 'closed' | 'silent'> {
  const child = await begun();
  const gone = new Promise<'closed'>((resolve) => child.once('exit', () => resolve('closed')));
  await change();
  const answered = new Promise<'open'>((resolve) => child.stdout?.once('data', () => resolve('open')));
  child.stdin?.write('GET / HTTP/1.0\r\n\r\n');
  const what = await Promise.race([gone, answered, pause(1_500, 'silent' as const)]);
  child.kill('SIGKILL');
  return what;
}
const WEB = { match: { proto: 'tcp', dst_ports: [443] } };

test('a new policy decides open inspected connections again: allowed connections continue, and denied ones transfer no data', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  expect(await held(() => rig.put(policyOf([tls({ sni: [SERVER_NAME, 'more.test'] })])))).toBe('open');
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  expect(await held(() => rig.put(policyOf([tls({ sni: ['more.test'] })])))).toBe('silent');
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  expect(await held(() => rig.put(policyOf([WEB])))).toBe('open');
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  expect(await held(() => rig.put(policyOf([])))).toBe('silent');
});

test('a ClientHello is decided by the policy that is in force when the ClientHello arrives, not when the TCP connection opened', async () => {
  const program = `
const tls = require('node:tls');
const socket = require('node:net').connect(443, '10.77.2.2', () => console.log('open'));
process.stdin.once('data', () => {
  const secure = tls.connect({ socket, servername: '${SERVER_NAME}', rejectUnauthorized: false }, () => { console.log('passed'); process.exit(0); });
  secure.on('error', () => { console.log('cut'); process.exit(0); });
});`;
  const heard = async (before: readonly string[], after: readonly string[]): Promise<string> => {
    await rig.put(policyOf([tls({ sni: before })]));
    const child = rig.topology.client.start(process.execPath, ['-e', program]);
    let said = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    await expect.poll(() => said).toContain('open');
    await rig.put(policyOf([tls({ sni: after })]));
    child.stdin?.write('go');
    await new Promise((resolve) => child.once('exit', resolve));
    return said.split('\n')[1] ?? '';
  };
  expect(await heard([SERVER_NAME], ['other.test'])).toBe('cut');
  expect(await heard(['other.test'], [SERVER_NAME])).toBe('passed');
});

/** Opens `count` connections that send nothing, and keeps them open until the returned process ends. */
async function silent(count: number): Promise<ChildProcess> {
  const program = `
import socket,sys
held=[socket.create_connection(('10.77.2.2',443)) for _ in range(${count})]
print('open',flush=True); sys.stdin.read()`;
  const child = rig.topology.client.start('/usr/bin/python3', ['-c', program]);
  expect(await firstLine(child)).toBe('open');
  return child;
}

test('inspected connections beyond max_connections are reset; in audit mode, as many further connections pass without inspection', async () => {
  const count = async (of: 'connections' | 'refused'): Promise<unknown> => {
    const { body } = await rig.node.request('GET', '/api/v1/stats');
    const { tls } = body as { tls: { connections: number; refused: Readonly<Record<string, number>> } };
    return of === 'refused' ? tls.refused.too_many_connections : tls.connections;
  };
  const soon = { timeout: 5_000 };
  await expect.poll(() => count('connections'), soon).toBe(0);
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  const enforced = await silent(ROOM);
  expect(await passes()).toBe(false);
  expect(await count('refused')).toBe(1);
  enforced.kill('SIGKILL');
  await expect.poll(() => count('connections'), soon).toBe(0);

  await rig.put(policyOf([tls({ sni: ['other.test'] }, { mode: 'audit' })]));
  const audited = await silent(ROOM);
  expect(await passes()).toBe(true);
  const findings = async (): Promise<readonly object[]> => {
    const { body } = await rig.node.request('GET', '/api/v1/audit/findings?finding_type=tls_deny&rule=r0');
    return (body as { items: object[] }).items;
  };
  await expect
    .poll(findings, soon)
    .toContainEqual(expect.objectContaining({ reason: 'too_many_connections', effective_action: 'allow' }));
  const more = await silent(ROOM);
  await expect.poll(() => count('connections'), soon).toBe(2 * ROOM);
  expect(await passes()).toBe(false);
  for (const child of [audited, more]) child.kill('SIGKILL');
  await expect.poll(() => count('connections'), soon).toBe(0);
});

test('a new connection takes the place of a suspended connection if max_connections is reached', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  const held = await Promise.all(Array.from({ length: ROOM }, begun));
  const suspended = async (): Promise<number> =>
    ((await rig.node.request('GET', '/api/v1/stats')).body as { tls: { suspended: number } }).tls.suspended;
  await rig.put(policyOf([tls({ sni: ['other.test'] })]));
  await expect.poll(suspended).toBe(ROOM);
  expect(await passes('-servername', 'other.test')).toBe(true);
  expect(await suspended()).toBe(ROOM - 1);
  for (const child of held) child.kill('SIGKILL');
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  await expect.poll(suspended).toBe(0);
});

describe('a server that sends HelloRetryRequest', () => {
  const PORTS = { retrying: 450, stateless: 451, intercepted: 450 } as const;
  const heard: string[] = [];
  /** Returns the server names of the ClientHellos that the two openssl servers have received. */
  const names = (): readonly string[] =>
    heard.flatMap((text) => /Hostname in TLS extension: "(.*)"/.exec(text)?.[1] ?? []);
  const on = (
    port: number,
    block: Readonly<Record<string, unknown>>,
    more: Readonly<Record<string, unknown>> = {},
  ) => ({
    match: { proto: 'tcp', dst_ports: [port], tls: block },
    ...more,
  });
  const any = (port: number) => ({ match: { proto: 'tcp', dst_ports: [port] } });
  const findings = async (
    reason: string,
  ): Promise<readonly { effective_action: string; rule: string; count: number }[]> => {
    const { body } = await rig.node.request('GET', '/api/v1/audit/findings?finding_type=tls_deny');
    const { items } = body as { items: { reason: string; effective_action: string; rule: string; count: number }[] };
    return items.filter((item) => item.reason === reason);
  };
  const named = [on(PORTS.retrying, { sni: [SERVER_NAME] }), on(PORTS.stateless, { sni: [SERVER_NAME] })];

  beforeAll(async () => {
    const { good } = rig.certificates;
    const second = ['-servername', 'denied.test', '-cert2', await rig.file('second.pem', good.certPem)];
    const options = [...RETRYING, ...second, '-key2', await rig.file('second.key', good.keyPem)];
    for (const child of [
      await rig.serve(PORTS.retrying, good, ...options),
      await rig.serve(PORTS.stateless, good, ...options, '-stateless'),
    ])
      child.stdout?.on('data', (chunk: Buffer) => heard.push(...chunk.toString().split('\n')));
  });

  test.each(SAME)(
    'a server that sends HelloRetryRequest receives a second ClientHello with changes that RFC 8446 permits (change: %s)',
    async (_, sent) => {
      await rig.put(policyOf(named));
      expect(await send(rig, PORTS.retrying, sent)).toBe('hello');
    },
  );

  test('a server that sends HelloRetryRequest receives the second ClientHello of an openssl client', async () => {
    await rig.put(policyOf(named));
    const groups = ['-groups', 'X25519:P-384'];
    const { text } = await rig.dial(PORTS.retrying, groups);
    expect(text).toContain('Verification error');
  });

  test.each(CHANGED)(
    'a server that sends HelloRetryRequest receives no second ClientHello with changes that RFC 8446 forbids (change: %s)',
    async (_, sent) => {
      await rig.put(policyOf(named));
      const before = names().length;
      expect(await send(rig, PORTS.retrying, sent)).toBe('reset');
      expect(names().slice(before)).not.toContain('denied.test');
    },
  );

  test('the node resets a connection after the server has sent a second HelloRetryRequest', async () => {
    await rig.put(policyOf(named));
    expect(await send(rig, PORTS.stateless, WITHOUT_COOKIE)).toBe('reset');
    expect(names()).not.toContain('denied.test');
  });

  test.each(CHANGED)(
    'under a deny rule, a server that sends HelloRetryRequest receives no second ClientHello that violates RFC 8446 (change: %s)',
    async (_, sent) => {
      await rig.put(policyOf([on(PORTS.retrying, { sni: ['denied.test'] }, { action: 'deny' }), any(PORTS.retrying)]));
      expect(await send(rig, PORTS.retrying, sent)).toBe('reset');
      expect(names()).not.toContain('denied.test');
    },
  );

  test('a second ClientHello with another server name reaches the server only in audit mode, and causes a finding in each mode', async () => {
    await expect
      .poll(() => findings('hello_changed'), { timeout: 5_000 })
      .toContainEqual(expect.objectContaining({ effective_action: 'deny', rule: null }));
    const audited = on(PORTS.retrying, { sni: [SERVER_NAME] }, { mode: 'audit' });
    await rig.put(policyOf([audited]));
    const [, sent] = CHANGED[0] as readonly [string, Sent];
    expect(await send(rig, PORTS.retrying, sent)).toBe('hello');
    await expect.poll(names).toContain('denied.test');
    await expect
      .poll(() => findings('hello_changed'), { timeout: 5_000 })
      .toContainEqual(expect.objectContaining({ effective_action: 'allow', rule: 'r0' }));
  });
});

test('after a new policy requires inspection, packets of an open connection that was not inspected are dropped', async () => {
  await rig.put(policyOf([WEB]));
  const child = await begun();
  let said = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
  });
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  child.stdin?.write('GET / HTTP/1.0\r\n\r\n');
  await expect.poll(async () => (await rig.stats()).drops.not_inspected).toBeGreaterThan(0);
  expect(said).toBe('');
  child.kill('SIGKILL');
});

test('while the node is dead, packets of new connections that match TLS rules are dropped, and open inspected connections end', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  expect(await held(() => rig.node.end('SIGKILL').then(() => {}))).toBe('closed');
  expect(await rig.tcp(443)).toBe('refused ETIMEDOUT');
  await rig.node.restart();
  await rig.node.ready();
  expect(await passes()).toBe(true);
  expect((await rig.stats()).drops.service_plane_absent).toBeGreaterThan(0);
});

test('a node with the address 192.0.2.1 adds its missing routing rule when it starts, and inspects connections', async () => {
  const { node } = rig.topology;
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  await rig.node.end('SIGTERM');
  await node.must('ip', 'rule', 'del', 'pref', '8353');
  await node.must('ip', 'addr', 'add', '192.0.2.1/32', 'dev', 'lo');
  try {
    await rig.node.restart();
    await rig.node.ready();
    expect(await passes()).toBe(true);
    expect(await passes('-servername', 'other.test')).toBe(false);
  } finally {
    await node.must('ip', 'addr', 'del', '192.0.2.1/32', 'dev', 'lo');
  }
});
