import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { program, weirCommand } from '#cli/tour/node-process.js';
import { ADDRESSES, type Namespace, namespaceOf } from '#cli/tour/topology.js';
import { eventually } from '#test/eventually.js';
import { DNS_SECTION, dig } from './names.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const soon = { timeout: 15_000, interval: 50 };
const PATH = '/api/v1/config/reload';
const RESOLVERS = [ADDRESSES.server, '10.77.2.3'];
const LAB = '10.77.8.2';
const TAKEN = 5_353;

type Sections = Readonly<Record<string, unknown>>;
type Last = { result: string; by: string; detail: string | null; applied: string[]; needs_restart: string[] };

let rig: NodeRig;
/** Two hosts. The interfaces of the node to them are not policed at first. */
let guest: Namespace;
let lab: Namespace;
let started: Sections;

/** Writes the configuration with which the node started, with `sections` changed. */
async function write(sections: Readonly<Record<string, Sections>>): Promise<void> {
  const merged = { ...started };
  for (const [name, members] of Object.entries(sections)) merged[name] = { ...(started[name] as object), ...members };
  await writeFile(join(rig.node.folder, 'weir.yaml'), JSON.stringify(merged));
}

const reload = (query = '') => rig.node.request('POST', `${PATH}${query}`);
async function last(): Promise<Last | null> {
  return ((await rig.node.request('GET', PATH)).body as { last_reload: Last | null }).last_reload;
}
const metric = async (name: string): Promise<string | undefined> => {
  const { text } = await rig.node.request('GET', '/metrics');
  return new RegExp(`^${name} (.*)$`, 'm').exec(text)?.[1];
};
const cli = (...words: string[]) => {
  const to = ['--server', rig.node.url, '--token-file', join(rig.node.folder, 'data', 'admin.token')];
  return new Promise<{ status: number; stdout: string; stderr: string }>((resolve) => {
    const [command, ...first] = weirCommand;
    execFile(command, [...first, ...words, ...to], (error, stdout, stderr) =>
      resolve({ status: Number(error?.code ?? 0), stdout, stderr }),
    );
  });
};
/** Sends SIGHUP to the node, and waits for the end of the reload. */
async function hangUp(): Promise<Last> {
  const line = '"by":"SIGHUP"';
  const before = (await rig.node.log()).split(line).length;
  process.kill(rig.node.pid, 'SIGHUP');
  await eventually(async () => expect((await rig.node.log()).split(line)).toHaveLength(before + 1), soon);
  return (await last()) as Last;
}

/** Sends ten echo requests from the guest to the lab. Returns the number of replies. */
async function answered(): Promise<number> {
  const { stdout } = await guest.run('ping', '-n', '-q', '-c', '10', '-i', '0.01', '-W', '0.3', LAB);
  return Number(/(\d+) received/.exec(stdout)?.[1]);
}
const guarded = async (): Promise<string[]> => {
  const rules = await rig.topology.node.must('nft', 'list', 'chain', 'inet', 'weir', 'guard');
  return [...rules.matchAll(/iifname "(\w+)"/g)].map(([, name]) => name ?? '');
};

beforeAll(async () => {
  rig = await createRig('reload', [443], {
    sections: { dns: { ...DNS_SECTION, listen: [`${ADDRESSES.nodeLan}:53`] } },
  });
  const { node, server } = rig.topology;
  guest = await namespaceOf('reload-guest');
  lab = await namespaceOf('reload-lab');
  for (const [name, host, net] of [
    ['guest0', guest, '10.77.9'],
    ['lab0', lab, '10.77.8'],
  ] as const) {
    await node.must('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', host.name);
    await node.must('ip', 'addr', 'add', `${net}.1/24`, 'dev', name);
    await node.must('ip', 'link', 'set', name, 'up');
    await host.must('ip', 'addr', 'add', `${net}.2/24`, 'dev', 'eth0');
    await host.must('ip', 'link', 'set', 'eth0', 'up');
    await host.must('ip', 'route', 'add', 'default', 'via', `${net}.1`);
  }
  await node.must('ip', 'tuntap', 'add', 'mode', 'tun', 'tun9');
  await server.must('ip', 'addr', 'add', '10.77.2.3/24', 'dev', 'eth0');
  for (const address of RESOLVERS) {
    const words = '--no-daemon --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root --pid-file=';
    server.start('dnsmasq', [...words.split(' '), `--listen-address=${address}`, '--address=/example.com/10.77.2.2']);
  }
  // Another program uses this port on all addresses of the node.
  node.start(process.execPath, [program('tour-traffic'), 'serve', String(TAKEN)]);
  await rig.put(
    policyOf([
      { match: { proto: 'udp', dst_ports: [443] } },
      { match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } },
    ]),
  );
  await rig.node.ready();
  await eventually(
    async () => expect((await dig(rig, ADDRESSES.nodeLan, 'a.example.com')).status).toBe('NOERROR'),
    soon,
  );
  started = JSON.parse(await readFile(join(rig.node.folder, 'weir.yaml'), 'utf8')) as Sections;
});
afterAll(async () => {
  await rig?.remove();
  await guest?.remove();
  await lab?.remove();
});
beforeEach(async () => {
  await write({});
  expect((await reload('?allow_unpoliced=true')).status).toBe(200);
});

const ADDED = { interfaces: ['lan0', 'wan0', 'guest0'] };

describe('a reload', () => {
  test('a configuration reload polices an added interface and releases a removed interface, and no packet of the other interfaces is lost', async () => {
    const flow = rig.topology.client.start(process.execPath, [
      program('tour-traffic'),
      ...['connect-udp', ADDRESSES.server, '443', '--every', '5', '--timeout', '400'],
    ]);
    let lines = '';
    flow.stdout?.on('data', (chunk) => (lines += String(chunk)));
    await eventually(() => expect(lines).toContain('pong 20\n'), soon);
    expect([await answered(), await guarded()]).toEqual([10, ['lan0', 'wan0']]);

    await write({ dataplane: ADDED });
    const added = await reload();
    expect([added.status, (added.body as Last).applied]).toEqual([200, ['/dataplane/interfaces']]);
    expect([await answered(), await guarded()]).toEqual([0, ['lan0', 'wan0', 'guest0']]);

    await write({});
    const released = await cli('config', 'reload', '--allow-unpoliced');
    expect([released.status, released.stdout]).toMatchObject([0, expect.stringContaining('  /dataplane/interfaces\n')]);
    expect([await answered(), await guarded()]).toEqual([10, ['lan0', 'wan0']]);
    await rig.node.ready();
    expect(await rig.node.log()).not.toMatch(/interface_(appeared|vanished)/);

    const sent = lines.split('\n').length;
    await eventually(() => expect(lines.split('\n').length).toBeGreaterThan(sent + 100), soon);
    flow.kill('SIGKILL');
    expect(lines.split('\n').filter((line) => line.startsWith('silent'))).toEqual([]);
  });

  test('a configuration reload with a wrong interface name that would leave an interface unpoliced is refused', async () => {
    await write({ dataplane: ADDED });
    expect(await hangUp()).toMatchObject({ result: 'applied', by: 'SIGHUP', applied: ['/dataplane/interfaces'] });
    await write({ dataplane: { interfaces: ['lan0', 'wan0', 'guest7'] } });
    const sentence = 'guest0 would no longer be policed: dataplane.interfaces of the file does not contain it';
    const refusal = { type: 'urn:weir:error:would_unpolice', detail: sentence };
    const replies = [await reload('?dry_run=true'), await reload()];
    expect(replies.map(({ status, body }) => ({ status, ...(body as object) }))).toMatchObject([
      { status: 409, ...refusal },
      { status: 409, ...refusal },
    ]);
    const { status, stderr } = await cli('config', 'reload', '--dry-run');
    expect([status, stderr]).toEqual([1, expect.stringMatching(`${sentence}[.]\\n.*--allow-unpoliced`)]);
    expect(await hangUp()).toMatchObject({ result: 'refused', detail: sentence });
    expect([await answered(), await guarded()]).toEqual([0, ['lan0', 'wan0', 'guest0']]);

    expect((await reload('?allow_unpoliced=true')).status).toBe(200);
    const open = 'the node forwards packets from guest0, lab0 without a policy';
    await eventually(async () => {
      const shown = (await cli('status')).stdout;
      expect(shown).toContain(`no interface has this name: guest7; ${open}`);
    }, soon);
    const warned = (await rig.node.log())
      .split('\n')
      .filter((line) => line.includes('"level":40') && line.includes(open));
    expect(warned.length).toBeGreaterThan(0);
  });

  test('a configuration reload changes the upstreams of the DNS proxy while DNS lookups run, and no lookup fails', async () => {
    const names = Array.from({ length: 1_500 }, (_, index) => `n${index}.example.com`);
    const file = join(rig.node.folder, 'names');
    await writeFile(file, `${names.join('\n')}\n`);
    let isOver = false;
    const digging = rig.topology.client
      .run('dig', `@${ADDRESSES.nodeLan}`, '+tries=1', '+time=2', '+nocookie', '-f', file)
      .finally(() => {
        isOver = true;
      });
    let changes = 0;
    for (; !isOver; changes++) {
      await write({ dns: { upstreams: [`${RESOLVERS[(changes + 1) % 2]}:53`] } });
      expect((await reload()).status).toBe(200);
    }
    const { stdout } = await digging;
    expect(changes).toBeGreaterThan(3);
    expect(stdout.match(/status: NOERROR/g)).toHaveLength(names.length);
    expect(stdout.match(/\t10\.77\.2\.2$/gm)).toHaveLength(names.length);
  });

  test('a configuration reload makes the DNS proxy listen on an added address, and stop listening on a removed address', async () => {
    await write({ dns: { listen: [`${ADDRESSES.nodeLan}:53`, `${ADDRESSES.nodeWan}:54`] } });
    expect((await reload()).status).toBe(200);
    const asked = async (...words: string[]) => (await dig(rig, ADDRESSES.nodeWan, '-p', '54', ...words)).status;
    expect([await asked('b.example.com'), await asked('+tcp', 'b.example.com')]).toEqual(['NOERROR', 'NOERROR']);
    await write({});
    expect((await reload()).status).toBe(200);
    await eventually(async () => expect(await asked('c.example.com')).toBe('none'), soon);
    expect((await dig(rig, ADDRESSES.nodeLan, 'c.example.com')).status).toBe('NOERROR');
  });

  test('a reload of a configuration file with errors changes nothing, and reports each error with its line', async () => {
    const text = JSON.stringify({ ...started, log: { level: 'debug' }, api: { listen: '127.0.0.1:8080', tsl: 1 } });
    await writeFile(join(rig.node.folder, 'weir.yaml'), text);
    const refused = await reload();
    expect([refused.status, refused.body]).toMatchObject([
      409,
      { type: 'urn:weir:error:invalid_config', problems: [{ pointer: '/api/tsl', code: 'unknown_key' }] },
    ]);
    const { status, stderr } = await cli('config', 'reload');
    expect(status).toBe(1);
    expect(stderr).toMatch(/^weir: Invalid configuration at \/api\/tsl: .*weir\.yaml:1:\d+: there is no such key\./);
    expect(await hangUp()).toMatchObject({ result: 'refused', by: 'SIGHUP', applied: [] });
    expect(await metric('weir_config_last_reload_successful')).toBe('0');
    expect((await cli('status')).stdout).toMatch(/config +not reloaded .* by SIGHUP \(refused\)/);
    expect((await rig.node.log()).includes('"level":20')).toBe(false);
    await write({});
    expect((await reload()).status).toBe(200);
    expect(await metric('weir_config_last_reload_successful')).toBe('1');
  });

  test.each([
    [
      'an address in use',
      { dns: { listen: [`${ADDRESSES.nodeLan}:53`, `${ADDRESSES.nodeLan}:${TAKEN}`] } },
      'EADDRINUSE',
    ],
    [
      'an interface without Ethernet',
      { dataplane: { interfaces: [...ADDED.interfaces, 'tun9'] } },
      'tun9 is not an Ethernet',
    ],
  ])(
    'a configuration reload that a part of the node cannot apply (cause: %s) restores every part',
    async (_, sections, reason) => {
      await write({ dataplane: ADDED, log: { level: 'debug' }, ...sections });
      const failed = await reload();
      expect([failed.status, failed.body]).toMatchObject([503, { type: 'urn:weir:error:reload_failed' }]);
      expect((failed.body as { detail: string }).detail).toContain(reason);
      expect(await last()).toMatchObject({ result: 'rolled_back', applied: [] });
      expect([await answered(), await guarded()]).toEqual([10, ['lan0', 'wan0']]);
      expect((await rig.node.log()).includes('"level":20')).toBe(false);
      expect((await dig(rig, ADDRESSES.nodeLan, 'd.example.com')).status).toBe('NOERROR');
      await rig.node.ready();
    },
  );

  test('a configuration reload with --dry-run shows the changes and changes nothing', async () => {
    const before = await last();
    await write({ dataplane: { ...ADDED, mark_mask: '0x0f000000' }, log: { level: 'debug' } });
    const { status, stdout } = await cli('config', 'reload', '--dry-run');
    expect([status, stdout.replace(/\d+ fields/, 'N fields')]).toEqual([
      0,
      'would be applied:\n  /log/level\n  /dataplane/interfaces\nneeds a restart:\n  /dataplane/mark_mask\nunchanged: N fields\n',
    ]);
    expect([await last(), await guarded()]).toEqual([before, ['lan0', 'wan0']]);
  });

  test('each configuration reload reports a changed field that needs a restart, and applies the other fields', async () => {
    await write({ dataplane: { forwarding: 'stack' }, log: { level: 'debug' } });
    expect((await reload()).body).toMatchObject({ applied: ['/log/level'], needs_restart: ['/dataplane/forwarding'] });
    await eventually(async () => expect(await rig.node.log()).toContain('"level":20'), soon);
    expect((await reload()).body).toMatchObject({ applied: [], needs_restart: ['/dataplane/forwarding'] });
    expect(await metric('weir_config_fields_awaiting_restart')).toBe('1');
    expect((await cli('status')).stdout).toMatch(
      /config +reloaded .* by admin: 0 changed {2}needs a restart: \/dataplane\/forwarding/,
    );
  });

  test('a configuration reload puts the policy of a new policy file in force, and changes nothing if the policy file has errors', async () => {
    const file = join(rig.node.folder, 'policy.yaml');
    await writeFile(file, 'default_policy: perhaps\nsource_groups: []\n');
    await write({ policy: { file }, dataplane: ADDED });
    const refused = await reload();
    expect([refused.status, refused.body]).toMatchObject([409, { problems: [{ pointer: '/default_policy' }] }]);
    expect(await guarded()).toEqual(['lan0', 'wan0']);
    expect(await rig.udp(443)).toBe('pong 1');

    await writeFile(file, 'default_policy: deny\nsource_groups: []\n');
    expect((await reload()).body).toMatchObject({ applied: ['/dataplane/interfaces', '/policy/file'] });
    expect(await rig.udp(443)).toBe('silent 1');
    await write({});
    expect((await reload('?allow_unpoliced=true')).body).toMatchObject({
      applied: ['/dataplane/interfaces', '/policy/file'],
    });
  });
});
