import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { createTopology, type Topology } from '#cli/tour/topology.js';
import { issuingNode } from '#test/cluster/issuing-node.js';
import { blockAt } from '#test/docs/blocks.js';
import { enterNamespace } from '#test/kernel/namespace.js';

const DROP_IN = '/etc/systemd/system/nftables.service.d/00-weir.conf';
const weir = fileURLToPath(new URL('../../bin/weir.js', import.meta.url));

const CAPABILITIES = 'cap_net_bind_service cap_net_admin cap_net_raw cap_perfmon cap_bpf';
const privileges = (of: string): string =>
  `User=weir\nGroup=\nAmbientCapabilities=${of}\nCapabilityBoundingSet=${of}\n`;

/**
 * A mount namespace with its own /run, /etc and /var/lib, a command `weir`, and a `systemctl` that ends and
 * starts the node. It writes the lines `stop`, `start` and `restart` to the pipe.
 */
const MACHINE = `set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/bin /run/up /run/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/up,workdir=/run/work /etc
mount -t tmpfs tmpfs /var/lib
mkdir /etc/weir /var/lib/weir
chmod 755 /etc/weir
echo weir:x:4242: >>/etc/group
echo weir:x:4242:4242::/:/bin/false >>/etc/passwd
cat >/run/privileges <<'END'
${privileges(CAPABILITIES)}END
echo 'ExecStart={ path=/usr/sbin/nft ; argv[]=/usr/sbin/nft -f /etc/nftables.conf ; ignore_errors=no ; pid=0 }' >/run/nftables
mkfifo /run/pipe
: >/run/weir.pid
cat >/run/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >>/run/systemctl.log
case $1 in
  restart)
    before=$(cat /run/weir.pid)
    echo restart >/run/pipe
    while test "$(cat /run/weir.pid)" = "$before"; do sleep 0.1; done
    ;;
  stop)
    echo stop >/run/pipe
    while kill -0 "$(cat /run/weir.pid)" 2>/dev/null; do sleep 0.1; done
    ;;
  start)
    echo start >/run/pipe
    while ! kill -0 "$(cat /run/weir.pid)" 2>/dev/null; do sleep 0.1; done
    ;;
  is-active) kill -0 "$(cat /run/weir.pid)" ;;
  show) if test "$2" = nftables.service; then cat /run/nftables; else cat /run/privileges; fi ;;
esac
END
cat >/run/bin/weir <<'END'
#!/bin/sh
exec ${process.execPath} ${weir} "$@"
END
chmod +x /run/bin/*
echo ready
set +e
while :; do
  read -r line </run/pipe || continue
  test "$line" = start || test -z "$pid" || { kill "$pid"; wait "$pid"; pid=; }
  test "$line" != stop && test -z "$pid" || continue
  setpriv --pdeathsig KILL ${process.execPath} ${weir} run --config /etc/weir/weir.yaml >>/run/weir.log 2>&1 &
  pid=$!
  echo "$pid" >/run/new.pid
  mv /run/new.pid /run/weir.pid
done
`;

let topology: Topology;
let pid: number;
beforeAll(async () => {
  topology = await createTopology('init-node');
  const machine = topology.node.start('unshare', ['--mount', 'sh', '-c', MACHINE]);
  pid = machine.pid ?? 0;
  await once(machine.stdout ?? machine, 'data');
  await write(
    '/etc/weir/weir.yaml',
    `{"version":1,"dataplane":{"interfaces":["lan0"],"pin_path":"${topology.pinPath}"}}`,
  );
});
afterAll(() => topology?.remove());

const run = (...words: string[]) =>
  topology.node.run(
    'nsenter',
    '--mount',
    '--target',
    String(pid),
    'env',
    'PATH=/run/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    ...words,
  );
const command = (...words: string[]) => run(process.execPath, weir, ...words);
const init = (...words: string[]) => command('init', '--interfaces', 'lan0,wan0', ...words);
const read = async (path: string): Promise<string> => (await run('cat', path)).stdout;
const write = (path: string, text: string) => run('sh', '-c', 'printf %s "$1" >"$0"', path, text);
const activePolicy = async (): Promise<unknown> => parse((await command('policy', 'get', '--output', 'yaml')).stdout);

const RULES = { default_policy: 'deny', source_groups: [{ id: 'of-the-api', sources: { cidrs: ['192.0.2.0/24'] } }] };

describe('weir init on a machine with systemd', () => {
  it('`weir init --mode enforce` after a trial in audit mode enforces the rules of the active policy, also if they were written through the API', async () => {
    const trial = await init('--mode', 'audit', '--force');
    expect([trial.code, trial.stderr]).toEqual([0, '']);
    expect(trial.stdout).toContain(
      'In force on lan0, wan0: policy gateway (audit): the policy denies nothing, and records the packets that it would deny.',
    );
    expect(trial.stdout).toMatch(
      /forwarded IPv6 packets and packets of other protocols pass without a policy \(\d+ packets until now; `weir status` counts them\)/,
    );
    const other = '/run/api.json';
    await write(other, JSON.stringify({ name: 'gateway', mode: 'audit', policy: RULES }));
    expect(await command('policy', 'apply', '-f', other)).toMatchObject({ code: 0, stderr: '' });

    const enforced = await init('--mode', 'enforce', '--force');
    expect([enforced.code, enforced.stderr]).toEqual([0, '']);
    expect(enforced.stdout).toContain('In force on lan0, wan0: policy gateway (enforce)');
    expect(enforced.stdout).toMatch(
      /forwarded IPv6 packets and packets of other protocols are dropped \(\d+ packets until now\)/,
    );
    expect(await activePolicy()).toMatchObject({ name: 'gateway', mode: 'enforce', policy: RULES });
  });

  it('`weir init` without --mode does not change the active policy', async () => {
    const { code, stdout, stderr } = await init('--force');
    expect([code, stderr, stdout]).toEqual([
      0,
      '',
      expect.stringContaining('policy gateway (enforce) is active already, and stays'),
    ]);
    expect(await activePolicy()).toMatchObject({ name: 'gateway', mode: 'enforce', policy: RULES });
  });

  it('`weir init` warns about a systemd unit in /etc that replaces the unit of the package', async () => {
    const [own, packaged] = ['/etc/systemd/system/weir.service', '/usr/lib/systemd/system/weir.service'];
    await run('sh', '-c', 'mount -t tmpfs tmpfs /etc/systemd/system && mount -t tmpfs tmpfs /usr/lib/systemd/system');
    await write(own, '[Service]\n');
    expect((await init('--force', '--dry-run')).stderr).toBe('');
    await write(packaged, '[Service]\n');
    expect((await init('--force', '--dry-run')).stderr).toBe(
      `warning: ${own} replaces ${packaged}: remove it if it is an old copy\n`,
    );
    await run('umount', '/etc/systemd/system', '/usr/lib/systemd/system');
  });

  it('`weir init` adds the drop-in of nftables.service, and keeps a changed drop-in', async () => {
    const deployed = fileURLToPath(new URL('../../deploy/systemd/nftables.service.d/00-weir.conf', import.meta.url));
    expect(await read(DROP_IN)).toBe(readFileSync(deployed, 'utf8'));
    expect((await read('/run/systemctl.log')).split('\n')).toContain('daemon-reload');
    await write(DROP_IN, '# changed\n');
    expect((await init('--force')).code).toBe(0);
    expect(await read(DROP_IN)).toBe('# changed\n');
    await run('rm', DROP_IN);
  });

  it('`weir init` warns about other commands of nftables.service that the drop-in would replace, and then adds no drop-in', async () => {
    await write(
      '/run/nftables',
      'ExecStart={ path=/usr/sbin/nft ; argv[]=/usr/sbin/nft -f /etc/firewall.nft ; pid=0 }\n',
    );
    const { code, stderr } = await init('--force');
    expect([code, stderr]).toEqual([
      0,
      expect.stringMatching(/^warning: nftables.service runs \/usr\/sbin\/nft -f \/etc\/firewall.nft: .*\n$/),
    ]);
    expect((await run('ls', DROP_IN)).code).not.toBe(0);
  });

  it('`weir init` changes nothing if the running node refuses the policy or the token', async () => {
    const policy = await read('/etc/weir/policy.yaml');
    const config = await read('/etc/weir/weir.yaml');
    const log = await read('/run/systemctl.log');
    const token = await read('/var/lib/weir/admin.token');
    expect(await command('policy', 'delete', '--name', 'gateway')).toMatchObject({ code: 0, stderr: '' });
    await write(
      '/etc/weir/policy.yaml',
      policy.replace(/cidrs: .*/, 'kubernetes: [{ integration: absent, pod_selector: { namespace: shop } }] }'),
    );
    const refused = await init('--mode', 'audit', '--force');
    await write('/var/lib/weir/admin.token', 'revoked');
    const unauthorised = await init('--mode', 'audit', '--force');
    await write('/var/lib/weir/admin.token', token);
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringMatching(/^\/etc\/weir\/policy.yaml:\d+:\d+: .*absent/m),
    ]);
    expect([unauthorised.code, unauthorised.stderr]).toEqual([1, expect.stringContaining('token')]);
    expect(await read('/etc/weir/weir.yaml')).toBe(config);
    expect((await read('/run/systemctl.log')).slice(log.length)).not.toContain('restart');
  });

  it('`weir init` refuses a machine on which the systemd unit cannot load the BPF programs, even if root can', async () => {
    await write('/run/privileges', privileges(CAPABILITIES.replace(' cap_bpf', '')));
    const before = await read('/run/systemctl.log');
    const { code, stderr } = await init('--force');
    await write('/run/privileges', privileges(CAPABILITIES));
    expect([code, stderr]).toEqual([
      1,
      'weir: this machine cannot enforce the configuration as user weir with the capabilities of weir.service\n' +
        '  The capability CAP_BPF is missing: run as root, or grant it.\n',
    ]);
    expect((await read('/run/systemctl.log')).slice(before.length)).not.toContain('restart');
  });

  it('`weir init` refuses a configuration that the user of the systemd unit cannot read', async () => {
    await run('chmod', '600', '/etc/weir/weir.yaml');
    const { code, stderr } = await init('--force');
    await run('chmod', '644', '/etc/weir/weir.yaml');
    expect([code, stderr]).toEqual([
      1,
      'weir: the user weir cannot read /etc/weir/weir.yaml (owner root:root, mode 0600): chgrp weir /etc/weir/weir.yaml && chmod g+r /etc/weir/weir.yaml\n',
    ]);
  });

  it('`weir init` refuses a new configuration in a folder that the user of the systemd unit may not enter', async () => {
    await run('sh', '-c', 'mv /etc/weir /etc/weir.kept && mkdir -m 700 /etc/weir');
    const { code, stderr } = await init();
    await run('sh', '-c', 'rmdir /etc/weir && mv /etc/weir.kept /etc/weir');
    expect([code, stderr]).toEqual([
      1,
      'weir: the user weir cannot read /etc/weir/weir.yaml, because it may not enter /etc/weir (owner root:root, mode 0700): chgrp weir /etc/weir && chmod g+x /etc/weir\n',
    ]);
  });
});

describe('backup commands of docs/install.md', () => {
  const shell = async (commands: string): Promise<string> => {
    const { code, stdout, stderr } = await run('sh', '-ec', `cd /run\n${commands}`);
    expect(code, stderr).toBe(0);
    return stdout;
  };
  const apply = async (network: string) => {
    const policy = { ...RULES, source_groups: [{ id: 'lan', sources: { cidrs: [network] } }] };
    await write('/run/api.json', JSON.stringify({ name: 'gateway', mode: 'enforce', policy }));
    expect(await command('policy', 'apply', '-f', '/run/api.json')).toMatchObject({ code: 0, stderr: '' });
  };
  const isReady = async () => (await command('status')).code === 0;

  beforeAll(() => apply('192.0.2.0/24'));

  it('a restore by the commands of docs/install.md keeps a newer policy of the kernel in force until the restored policy is activated', async () => {
    await shell(blockAt('docs/install.md', 'systemctl stop weir\n(umask'));
    expect(await shell('stat -c %a weir-backup.tar.gz')).toBe('600\n');
    await expect.poll(isReady).toBe(true);
    await apply('198.51.100.0/24');
    await shell(blockAt('docs/install.md', 'systemctl stop weir\nrm'));
    await expect
      .poll(async () => (await command('status')).stdout)
      .toMatch(/the kernel enforces generation \d+, but the newest generation in the data folder is \d+/);
    await shell(blockAt('docs/install.md', 'weir policy activate gateway'));
    await expect.poll(isReady).toBe(true);
    expect(JSON.stringify(await activePolicy())).toContain('192.0.2.0/24');
  });
});

describe('files of a node that root writes', () => {
  const ofUser = (...words: string[]) =>
    run('setpriv', '--reuid', 'weir', '--regid', 'weir', '--clear-groups', ...words);
  const unreadable = async (): Promise<string> => (await ofUser('find', '/etc/weir', '!', '-readable')).stdout;
  const joining = async () => {
    const leave = enterNamespace(topology.node.name);
    onTestFinished(leave);
    const { token } = await issuingNode();
    return command('cluster', 'join', token, '--config', '/etc/weir/weir.yaml', '--advertise', '127.0.0.1:7443');
  };

  it('the files that `weir init` and `weir cluster join` write as root can be read by the user of the systemd unit', async () => {
    await run('sh', '-c', 'rm /etc/weir/*');
    const made = await command('init', '--interfaces', 'lan0,wan0', '--no-start');
    expect([made.code, made.stderr]).toEqual([0, '']);
    expect(await unreadable()).toBe('');
    expect((await ofUser('cat', '/etc/weir/weir.yaml')).stdout).toBe(await read('/etc/weir/weir.yaml'));

    const joined = await joining();
    expect([joined.code, joined.stderr]).toEqual([0, '']);
    expect(await unreadable()).toBe('');
    const owners = (await run('stat', '-c', '%U:%G %a %n', '/etc/weir/weir.yaml', '/etc/weir/cluster/seal.key')).stdout;
    expect(owners).toBe('root:weir 640 /etc/weir/weir.yaml\nweir:weir 600 /etc/weir/cluster/seal.key\n');
    expect(await command('config', 'check', '/etc/weir/weir.yaml')).toMatchObject({ code: 0, stderr: '' });
    expect(await ofUser(process.execPath, weir, 'config', 'check', '/etc/weir/weir.yaml')).toMatchObject({ code: 0 });
  });

  it('the files that `weir init` and `weir cluster join` write belong to the user and group in a drop-in of the systemd unit', async () => {
    await run('sh', '-c', 'echo other:x:4343: >>/etc/group; echo other:x:4343:4343::/:/bin/false >>/etc/passwd');
    await write('/run/privileges', privileges(CAPABILITIES).replace('User=weir\nGroup=', 'User=other\nGroup=other'));
    await run('sh', '-c', 'rm -r /etc/weir/*');
    expect(await command('init', '--interfaces', 'lan0,wan0', '--no-start')).toMatchObject({ code: 0, stderr: '' });
    expect(await joining()).toMatchObject({ code: 0, stderr: '' });
    const owners = (await run('stat', '-c', '%U:%G %a', '/etc/weir/weir.yaml', '/etc/weir/cluster/etcd.key')).stdout;
    expect(owners).toBe('root:other 640\nother:other 600\n');
    await write('/run/privileges', privileges(CAPABILITIES));
  });
});
