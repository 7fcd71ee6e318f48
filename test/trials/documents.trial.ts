import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { EtcdCluster } from '#test/cluster/etcd-cluster.js';
import { ClusterNode } from '#test/cluster/node-cluster.js';
import { blockAt } from '#test/docs/blocks.js';
import { enterNamespace } from '#test/kernel/namespace.js';

/** This trial runs command blocks of the documents as they are written, with real nodes and a real etcd. */
const root = fileURLToPath(new URL('../..', import.meta.url));
const NEW_ADDRESS = '127.0.0.1:9084';
const OFFICE = 'name: office\nmode: enforce\npolicy: { default_policy: deny }\n';

let etcd: EtcdCluster;
let leave: () => void;
const nodes: ClusterNode[] = [];

beforeAll(async () => {
  etcd = await EtcdCluster.start('documents', 1);
  leave = enterNamespace(etcd.namespace);
  writeFileSync(join(etcd.folder, 'weir'), `#!/bin/sh\nexec ${process.execPath} ${root}/bin/weir.js "$@"\n`);
  chmodSync(join(etcd.folder, 'weir'), 0o755);
  writeFileSync(join(etcd.folder, 'office.yaml'), OFFICE);
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.end()));
  leave?.();
  await etcd?.remove();
});

async function started(node: ClusterNode): Promise<void> {
  nodes.push(node);
  node.start();
  await node.serves();
}

/** Runs commands as a user with the token of the first node does. Returns the standard output. */
function shell(commands: string): string {
  const [node] = nodes;
  const token = readFileSync(join(node?.folder ?? '', 'data', 'admin.token'), 'utf8').trim();
  const env = { ...process.env, PATH: `${etcd.folder}:${process.env.PATH}`, WEIR_SERVER: node?.url, WEIR_TOKEN: token };
  const words = [`--net=/run/netns/${etcd.namespace}`, 'sh', '-ec', commands];
  const { status, stdout, stderr } = spawnSync('nsenter', words, { cwd: etcd.folder, env, encoding: 'utf8' });
  expect(status, stderr).toBe(0);
  return stdout;
}

/** Returns the command of a block in the line that begins with `start`, without its comment. */
function commandOf(block: string, start: string): string {
  const line = block.split('\n').find((each) => each.startsWith(start));
  return (line ?? `no line begins with ${start}`).replace(/ +#.*/, '');
}

test('the blocks of docs/cluster.md create a cluster, add a node and remove it', async () => {
  for (const index of [0, 1]) await started(new ClusterNode(`n${index + 1}`, index, etcd));
  expect(shell(blockAt('docs/cluster.md', 'weir cluster init'))).toMatch(/etcd +connected[\s\S]*NODE +ADDRESS/);
  await Promise.all(nodes.map((node) => node.takesPart()));

  const joining = blockAt('docs/cluster.md', 'weir cluster token');
  const token = shell(commandOf(joining, 'weir cluster token')).trim();
  const config = join(etcd.folder, 'node-d.yaml');
  writeFileSync(config, 'version: 1\n');
  const joinCommand = commandOf(joining, 'weir cluster join')
    .replace('TOKEN', token)
    .replace('/etc/weir/weir.yaml', config);
  shell(joinCommand.replace('10.0.1.4:7443', NEW_ADDRESS));
  const { cluster } = parse(readFileSync(config, 'utf8')) as { cluster: object };
  const joined = new ClusterNode('node-d', 3, etcd, { cluster });
  await started(joined);
  await joined.takesPart();

  expect(shell(blockAt('docs/cluster.md', 'weir cluster nodes'))).toMatch(/node-d[\s\S]*the node node-d was removed/);
  await joined.until('cluster', 'refused');
});

test('the block of docs/cluster.md rolls out a policy, shows and confirms this change, and reverts another change', async () => {
  const block = blockAt('docs/cluster.md', 'weir policy apply -f office.yaml --rollout-share');
  const [apply, pending, confirm, revert] = [
    'weir policy apply',
    'weir policy pending',
    'weir policy confirm',
    'weir policy revert',
  ].map((start) => commandOf(block, start));
  expect(shell(`${apply}\n${pending}\n${confirm}`)).toMatch(/office/);
  writeFileSync(join(etcd.folder, 'office.yaml'), OFFICE.replace('deny', 'allow'));
  shell(`${apply}\n${pending}\n${revert}`);
  expect(shell('weir policy get --output yaml')).toContain('default_policy: deny');
});

test.each(['node', 'store'])(
  'the command of docs/cluster.md ends a contradiction between a node and etcd by keeping the policy of the `%s`',
  async (side) => {
    const backup = etcd.backup();
    shell('weir policy apply -f office.yaml');
    await etcd.restore(backup);
    const [node] = nodes;
    await node?.until('policy_replication', 'held');
    shell(commandOf(blockAt('docs/cluster.md', 'weir cluster recover'), `weir cluster recover --keep ${side}`));
    await node?.takesPart();
  },
);

test('the block of docs/boot.md installs the units, the drop-in and the user', () => {
  const machine = `mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/bin /mnt/up /mnt/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/up,workdir=/mnt/work /etc
sed -i '/^weir:/d' /etc/passwd /etc/group /etc/shadow /etc/gshadow
printf '#!/bin/sh\\necho systemctl "$@"\\n' >/mnt/bin/systemctl
chmod +x /mnt/bin/systemctl
PATH=/mnt/bin:$PATH
${blockAt('docs/boot.md', 'useradd --system weir')}
id -u weir
stat -c '%a %n' /etc/systemd/system/weir.service /etc/systemd/system/weir-guard.service /etc/systemd/system/nftables.service.d/00-weir.conf`;
  const { status, stdout, stderr } = spawnSync('unshare', ['--mount', 'sh', '-ec', machine], {
    cwd: root,
    encoding: 'utf8',
  });
  expect(status, stderr).toBe(0);
  expect(stdout).toMatch(
    /^systemctl daemon-reload\nsystemctl enable weir-guard.service weir.service\n\d+\n644 \S+\n644 \S+\n644 \S+\n$/,
  );
});
