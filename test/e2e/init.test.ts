import {
  chmodSync,
  chownSync,
  lstatSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { weirCommand } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from '#cli/tour/topology.js';
import { commandHere } from './command-here.js';
import { isInstalled } from './rig.js';

const UNSEEN_PORT = '81';

let topology: Topology;
let folder: string;
beforeAll(async () => {
  topology = await createTopology('init');
  await topology.node.must('sysctl', '-qw', 'net.ipv4.ip_forward=1');
});
beforeEach(async () => {
  folder = await temporaryFolder('init');
  return () => rmSync(folder, { recursive: true });
});
afterAll(() => topology?.remove());

const file = () => join(folder, 'weir.yaml');
const command = (...words: string[]) => topology.node.run(...weirCommand, ...words);
/** Runs `weir init` in this process, if the tests do not run an installed Weir. */
const init = (...words: string[]) =>
  (isInstalled ? command : commandHere.bind(null, topology.node))('init', '--config', file(), '--interfaces', ...words);
const read = (name: string): unknown => parse(readFileSync(join(folder, name), 'utf8'));

/** Whether a TCP packet from the client reaches the server, which resets the connection. */
async function reaches(): Promise<boolean> {
  const { stderr } = await topology.client.run(
    ...(['timeout', '2', 'bash', '-c', `exec 3<>/dev/tcp/${ADDRESSES.server}/${UNSEEN_PORT}`] as const),
  );
  return stderr.includes('Connection refused');
}
const pings = async (): Promise<boolean> =>
  (await topology.client.run('ping', '-c', '1', '-W', '2', ADDRESSES.server)).code === 0;

describe('weir init', () => {
  it('`weir init` writes the files of a trial: a configuration that lets all packets pass, and a policy in audit mode', async () => {
    const words = ['init', '--config', file(), '--interfaces', 'lan0,wan0'];
    const { code, stdout, stderr } = await command(...words);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n').slice(0, 3)).toEqual([
      `wrote ${file()}`,
      `wrote ${join(folder, 'policy.yaml')}`,
      'systemd does not run here, so the node is not started.',
    ]);
    expect(read('weir.yaml')).toEqual({
      version: 1,
      node: { data_dir: '/var/lib/weir' },
      dataplane: { interfaces: ['lan0', 'wan0'], ipv6: 'pass', non_ipv4: 'pass', reverse_path: 'off' },
      policy: { fallback: 'allow' },
    });
    expect(read('policy.yaml')).toEqual({
      name: 'gateway',
      mode: 'audit',
      policy: {
        default_policy: 'deny',
        source_groups: [
          {
            id: 'lan',
            sources: { cidrs: ['10.77.1.0/24', '10.77.3.0/24'] },
            rules: [{ id: 'ping', action: 'allow', match: { proto: 'icmp' } }],
          },
        ],
      },
    });
    expect(readdirSync(folder).map((name) => (statSync(join(folder, name)).mode & 0o777).toString(8))).toEqual([
      '640',
      '640',
    ]);
    expect((await command('config', 'check', file())).code).toBe(0);
  });

  it('if an interface forwards IPv6, `weir init` writes `ipv6: enforce`, and a policy with the IPv6 networks of the interface', async () => {
    const setting = '/proc/sys/net/ipv6/conf/lan0/forwarding';
    await topology.node.must('sh', '-c', `echo 1 > ${setting}`);
    await topology.node.must('ip', 'addr', 'add', '2001:db8:7::9/60', 'dev', 'lan0', 'nodad');
    try {
      const { code, stdout } = await command('init', '--config', file(), '--interfaces', 'lan0,wan0');
      expect([code, stdout]).toEqual([
        0,
        expect.stringContaining('\nlan0 forwards IPv6: the policy decides IPv6 too (dataplane.ipv6: enforce)\n'),
      ]);
      expect(read('weir.yaml')).toMatchObject({ dataplane: { ipv6: 'enforce', non_ipv4: 'pass' } });
      expect(read('policy.yaml')).toMatchObject({
        policy: {
          source_groups: [
            {
              sources: { cidrs: ['10.77.1.0/24', '10.77.3.0/24', '2001:db8:7::/60'] },
              rules: [{ match: { proto: 'icmp' } }, { match: { proto: 'icmpv6' } }],
            },
          ],
        },
      });
      expect((await command('config', 'check', file())).code).toBe(0);
      expect((await init('lan0,wan0', '--mode', 'enforce', '--force')).code).toBe(0);
      expect(read('weir.yaml')).toMatchObject({ dataplane: { ipv6: 'enforce', non_ipv4: 'drop' } });
    } finally {
      await topology.node.must('sh', '-c', `echo 0 > ${setting}`);
      await topology.node.must('ip', 'addr', 'del', '2001:db8:7::9/60', 'dev', 'lan0');
    }
  });

  it('`weir init --force` changes only the keys that it sets in an existing configuration, and keeps other keys and comments', async () => {
    const text = 'version: 1\nlog: { level: warn } # mine\ndataplane: { interfaces: [lan0], pickup: 0s }\n';
    writeFileSync(file(), text);
    const refused = await init('lan0,wan0', '--mode', 'enforce');
    expect(refused).toEqual({
      code: 1,
      stdout: '',
      stderr: `weir: ${file()} exists already: add --force to change its interfaces, and with --mode the keys of the mode; all others stay\n`,
    });
    expect([readFileSync(file(), 'utf8'), readdirSync(folder)]).toEqual([text, ['weir.yaml']]);

    expect((await init('lan0,wan0', '--mode', 'enforce', '--force')).code).toBe(0);
    expect(readFileSync(file(), 'utf8')).toContain('# mine');
    expect(read('weir.yaml')).toEqual({
      version: 1,
      log: { level: 'warn' },
      dataplane: { interfaces: ['lan0', 'wan0'], pickup: '0s', ipv6: 'drop', non_ipv4: 'drop', reverse_path: 'strict' },
      policy: { fallback: 'deny' },
    });
  });

  it('`weir init` without --mode adds an interface to an enforcing gateway, and keeps its other settings and the mode of its policy', async () => {
    expect((await init('lan0', '--mode', 'enforce')).code).toBe(0);
    const policy = readFileSync(join(folder, 'policy.yaml'), 'utf8');
    expect((await init('lan0,wan0', '--force')).code).toBe(0);
    expect(read('weir.yaml')).toMatchObject({
      dataplane: { interfaces: ['lan0', 'wan0'], ipv6: 'drop', non_ipv4: 'drop', reverse_path: 'strict' },
      policy: { fallback: 'deny' },
    });
    expect(readFileSync(join(folder, 'policy.yaml'), 'utf8')).toBe(policy);

    rmSync(join(folder, 'policy.yaml'));
    expect((await init('lan0,wan0', '--force')).code).toBe(0);
    expect(read('policy.yaml')).toMatchObject({ mode: 'enforce' });

    rmSync(file());
    const { code, stderr } = await init('lan0,wan0');
    expect([code, stderr]).toEqual([
      1,
      `weir: the mode of ${join(folder, 'policy.yaml')} is enforce: give --mode enforce, or --mode audit for a trial\n`,
    ]);
    expect((await init('lan0,wan0', '--mode', 'audit')).code).toBe(0);
    expect(read('policy.yaml')).toMatchObject({ mode: 'audit' });
  });

  it('`weir init` refuses to end the policing of an interface, and accepts a pattern that covers the interface', async () => {
    expect((await init('lan0,wan0')).code).toBe(0);
    const { code, stderr } = await init('lan0', '--force');
    expect([code, stderr]).toEqual([
      1,
      `weir: wan0 would no longer be policed: name it too, or remove it from dataplane.interfaces in ${file()} first\n`,
    ]);
    expect(read('weir.yaml')).toMatchObject({ dataplane: { interfaces: ['lan0', 'wan0'] } });
    expect((await init('lan0,w*', '--force')).code).toBe(0);
    expect(read('weir.yaml')).toMatchObject({ dataplane: { interfaces: ['lan0', 'w*'] } });
  });

  it('`weir init --mode` changes only the mode of an existing policy file', async () => {
    const policy = 'name: mine # kept\nmode:   audit # for a week\npolicy: {default_policy: deny}\n';
    writeFileSync(join(folder, 'policy.yaml'), policy);
    expect((await init('lan0,wan0', '--mode', 'enforce')).code).toBe(0);
    expect(readFileSync(join(folder, 'policy.yaml'), 'utf8')).toBe(policy.replace('audit', 'enforce'));
  });

  it('`weir init` writes through a symlink, and keeps the owner and the mode of the target file', async () => {
    const checkout = join(folder, 'checkout.yaml');
    writeFileSync(checkout, 'version: 1\n');
    chownSync(checkout, 4711, 4712);
    chmodSync(checkout, 0o604);
    symlinkSync(checkout, file());
    const victim = join(folder, 'victim');
    writeFileSync(victim, 'of root');
    symlinkSync(victim, join(folder, 'policy.yaml.new'));

    expect((await init('lan0,wan0', '--force')).code).toBe(0);
    const { uid, gid, mode } = statSync(checkout);
    expect([uid, gid, mode & 0o777]).toEqual([4711, 4712, 0o604]);
    expect([lstatSync(file()).isSymbolicLink(), readFileSync(checkout, 'utf8')]).toEqual([
      true,
      expect.stringContaining('lan0'),
    ]);
    expect([readFileSync(victim, 'utf8'), statSync(victim).uid]).toEqual(['of root', 0]);
    expect(lstatSync(join(folder, 'policy.yaml')).isFile()).toBe(true);
  });

  it('`weir init` refuses an invalid configuration with the line of each error, and does not change the file', async () => {
    for (const [text, place] of [
      ['version: 1\nnode:\n\tdata_dir: /srv\n', '3:1'],
      ['version: 1\nlog: { level: warn }\nlog: { level: info }\n', '3:1'],
      ['version: 1\npolicy:\n', '2:'],
    ] as const) {
      writeFileSync(file(), text);
      const { code, stderr } = await init('lan0,wan0', '--force');
      expect([code, stderr]).toEqual([1, expect.stringContaining(`${file()}:${place}`)]);
      expect([readFileSync(file(), 'utf8'), readdirSync(folder)]).toEqual([text, ['weir.yaml']]);
    }
  });

  it('`weir init` keeps the comments in the list of interfaces', async () => {
    const list = '  interfaces:\n    # the office\n    - lan0 # 1 Gbit/s\n';
    writeFileSync(file(), `version: 1\ndataplane:\n${list}`);
    expect((await init('lan0,wan0', '--force')).code).toBe(0);
    expect(readFileSync(file(), 'utf8')).toBe(`version: 1\ndataplane:\n${list}    - wan0\n`);
  });

  it('`weir init` refuses a policy file that no node would accept, and writes nothing', async () => {
    const policy = join(folder, 'policy.yaml');
    for (const [text, message] of [
      [
        'default_policy: deny\n',
        `weir: weir init cannot use ${policy}: a first policy has the keys name, mode and policy\n`,
      ],
      ['name: a\nmode: audit\npolicy:\n  default_policy: maybe\n', `${policy}:4:19: `],
      ['name: a\nname: b\n', `weir: ${policy}:2:1: the text is neither YAML nor JSON: Map keys must be unique\n`],
    ] as const) {
      writeFileSync(policy, text);
      const { code, stderr } = await init('lan0,wan0', '--mode', 'enforce');
      expect([code, stderr, readdirSync(folder)]).toEqual([1, expect.stringContaining(message), ['policy.yaml']]);
      expect(readFileSync(policy, 'utf8')).toBe(text);
    }
  });

  it('`weir init --dry-run` prints the files, and writes nothing', async () => {
    const { code, stdout } = await init('lan0,wan0', '--dry-run');
    expect([code, stdout.split('\n')[0], readdirSync(folder)]).toEqual([0, `# ${file()}`, []]);
  });

  it('`weir init` refuses interfaces that do not exist or do not forward with one sentence each, and writes nothing', async () => {
    await topology.node.must('sysctl', '-qw', 'net.ipv4.conf.wan0.forwarding=0');
    const { code, stderr } = await init('lan9,wan0').finally(() =>
      topology.node.must('sysctl', '-qw', 'net.ipv4.conf.wan0.forwarding=1'),
    );
    expect([code, stderr, readdirSync(folder)]).toEqual([
      1,
      'weir: this machine cannot be configured:\n' +
        '  There is no interface lan9: this machine has lan0, wan0.\n' +
        '  IPv4 forwarding is off on wan0: run `sysctl -w net.ipv4.ip_forward=1`, and write net.ipv4.ip_forward=1 to a file in /etc/sysctl.d.\n',
      [],
    ]);
  });

  it('`weir init` refuses an interface without Ethernet header, and warns about a forwarding interface that is not policed', async () => {
    await topology.node.must('ip', 'tuntap', 'add', 'mode', 'tun', 'tun0');
    await topology.node.must('sysctl', '-qw', 'net.ipv4.conf.tun0.forwarding=1');
    const refused = await init('lan0,tun0').finally(() => topology.node.must('ip', 'link', 'del', 'tun0'));
    expect([refused.code, refused.stderr, readdirSync(folder)]).toEqual([
      1,
      'weir: this machine cannot enforce the configuration\n' +
        '  tun0 is not an Ethernet interface; the datapath supports only Ethernet\n',
      [],
    ]);
    const half = await init('lan0');
    expect([half.code, half.stderr]).toEqual([
      0,
      'warning: the node forwards packets from wan0 without a policy: dataplane.interfaces does not contain it\n',
    ]);
  });

  it('`weir init` refuses NAT that the settings of the configuration do not support, as a running node does', async () => {
    writeFileSync(file(), 'version: 1\ndataplane: { interfaces: [lan0, wan0], police_local: true }\n');
    await topology.node.must(
      'nft',
      'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }',
    );
    await topology.node.must('nft', 'add rule ip nat post oifname "wan0" masquerade');
    const { code, stderr } = await init('lan0,wan0', '--force').finally(() =>
      topology.node.must('nft', 'delete table ip nat'),
    );
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining(
        'nftables chain ip nat post translates addresses at wan0, which is not supported here (dataplane.police_local is set)',
      ),
    ]);
    expect((await init('lan0,wan0', '--force')).code).toBe(0);
  });

  it('`weir init` names a missing capability, and refuses a user other than root', async () => {
    const words = [...weirCommand, 'init', '--config', file(), '--interfaces', 'lan0,wan0'];
    const caps = '-all,+net_admin,+perfmon,+sys_admin,+sys_chroot,+dac_override';
    const weak = await topology.node.run('setpriv', '--bounding-set', caps.replace(',+net_admin', ''), ...words);
    expect([weak.code, weak.stderr]).toEqual([
      1,
      'weir: The capability CAP_NET_ADMIN is missing: run as root, or grant it\n',
    ]);
    // The command of an installed Weir needs CAP_SYS_CHROOT.
    const chroot = ['--inh-caps', '+sys_chroot', '--ambient-caps', '+sys_chroot'];
    const other = await topology.node.run('setpriv', '--reuid', '65534', '--clear-groups', ...chroot, ...words);
    expect([other.code, other.stderr]).toEqual([1, 'weir: weir init needs root\n  → run it with sudo\n']);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('`weir init` configures a node that denies nothing with --mode audit, and a node that denies with --mode enforce', async () => {
    const keys = { node: { data_dir: folder }, dataplane: { interfaces: ['lan0'], pin_path: topology.pinPath } };
    writeFileSync(file(), JSON.stringify({ version: 1, ...keys }));
    for (const mode of ['audit', 'enforce']) {
      expect((await init('lan0,wan0', '--mode', mode, '--force')).code).toBe(0);
      const [program, ...words] = weirCommand;
      const node = topology.node.start(program, [...words, 'run', '--config', file()]);
      const ended = new Promise((resolve) => node.once('exit', resolve));
      const config = ['--config', file()];
      try {
        await expect
          .poll(async () => (await command('status', ...config)).stdout, { timeout: 20_000, interval: 1_000 })
          .toContain('policy');
        // No policy is active at first, and that of the trial in the second round: neither denies.
        expect(await reaches()).toBe(true);
        const policy = join(folder, 'policy.yaml');
        const applied = await command('policy', 'apply', '-f', policy, ...config, '--wait');
        expect(applied.stdout).toContain(`gateway (${mode})`);
        expect([await pings(), await reaches()]).toEqual([true, mode === 'audit']);
      } finally {
        node.kill();
        await ended;
      }
    }
  });
});
