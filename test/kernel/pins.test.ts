import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { Hooks } from '#dataplane/attach/interface-hooks.js';
import { lockHolder, networkNamespace } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { closeFd, openPinned, pin } from '#dataplane/loader/bpf-fd.js';
import { MAPS } from '#dataplane/loader/bpf-object.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { objectId } from '#libc/bpf/object-handle.js';
import { datapathOptions } from './datapath-options.js';
import { allowAll } from './policies.js';
import { topologyOfFile } from './topology-of-file.js';

const PINNED = [...MAPS, 'weir_egress', 'weir_ingress'].sort();

const topology = topologyOfFile('pins');
let datapath: LocalDatapath;
let folder: string;
beforeEach(() => {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath));
  datapath.open();
  datapath.attach();
  datapath.stage(allowAll, 7);
  datapath.flip();
  folder = join(topology.pinPath, 'maps-1');
});
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

async function reaches(): Promise<boolean> {
  return (await topology.client.run('ping', '-n', '-c', '1', '-W', '0.4', ADDRESSES.server)).code === 0;
}

/** Replaces the pin `name` by a pin of the BPF object that is pinned as `other`. */
function replace(name: string, other: string): void {
  const fd = openPinned(join(folder, other));
  mkdirSync(join(topology.pinPath, 'aside'));
  pin(fd, join(topology.pinPath, 'aside', name));
  closeFd(fd);
  renameSync(join(topology.pinPath, 'aside', name), join(folder, name));
  rmSync(join(topology.pinPath, 'aside'), { recursive: true });
}

test.each<[string, () => void, readonly string[]]>([
  ['the pin of one map', () => rmSync(join(folder, 'flows')), ['flows']],
  ['the pin of one BPF program', () => rmSync(join(folder, 'weir_ingress')), ['weir_ingress']],
  ['all pins', () => readdirSync(folder).forEach((name) => void rmSync(join(folder, name))), PINNED],
  ['the folder of the pins', () => rmSync(folder, { recursive: true }), PINNED],
  ['the whole pin path', () => rmSync(topology.pinPath, { recursive: true }), PINNED],
  ['another map is pinned as `active`', () => replace('active', 'vitals'), ['active']],
  ['another map is pinned as `layouts`', () => replace('layouts', 'sweep'), ['layouts']],
])(
  '`look` reports removed or replaced BPF pins, and `attach` restores these pins (lost or replaced: %s)',
  async (_, lose, lost) => {
    expect(datapath.look()).toEqual([]);
    lose();
    const seen = datapath.look().filter(({ type }) => type !== 'link_lost');
    expect(seen.map((change) => ({ ...change, pins: 'pins' in change ? [...change.pins].sort() : [] }))).toEqual([
      { type: 'pins_lost', pins: lost },
    ]);
    expect(datapath.look()).toEqual([]);
    datapath.attach();
    expect(datapath.look()).toEqual([]);
    expect(readdirSync(folder).sort()).toEqual(PINNED);
    expect(readdirSync(topology.pinPath).sort()).toEqual([
      `links-${networkNamespace()}`,
      'maps-1',
      `names-${networkNamespace()}`,
    ]);
    // Start another datapath: it must find the policy in force, and traffic must still pass.
    datapath.close();
    datapath = new LocalDatapath(datapathOptions(topology.pinPath));
    expect(datapath.open()).toMatchObject({ adopted: true, inForce: { generation: 7 } });
    datapath.attach();
    expect(await reaches()).toBe(true);
  },
);

test('`attach` creates and locks the pin path again if the pin path was removed', () => {
  rmSync(topology.pinPath, { recursive: true });
  datapath.attach();
  expect(lockHolder(topology.pinPath)).toMatchObject({ pid: process.pid });
});

/** The pinned objects by path, and the programs on the hooks, by the ids of the kernel. */
function inKernel(): unknown {
  const idOf = (path: string): number => {
    const fd = openPinned(path);
    try {
      return objectId(fd);
    } finally {
      closeFd(fd);
    }
  };
  const sets = readdirSync(topology.pinPath).filter((name) => name.startsWith('maps-'));
  const paths = sets.flatMap((set) => readdirSync(join(topology.pinPath, set)).map((name) => join(set, name)));
  const pins = paths.sort().map((path) => [path, idOf(join(topology.pinPath, path))]);
  const hooks = new Hooks(datapathOptions(topology.pinPath), new Pins(topology.pinPath));
  return { pins, programs: hooks.attachedPrograms() };
}

test.each([
  ['the same maps', {}],
  ['the same maps and another mark mask', { markMask: 0x0f00_0000 }],
  ['other maps', { flowCapacity: 2_048 }],
])(
  'a start of the datapath with %s that ends before `attach` leaves the BPF pins and the hooks as they were',
  async (_, more) => {
    datapath.close();
    const before = inKernel();
    const failing = new LocalDatapath(datapathOptions(topology.pinPath, more));
    expect(failing.open()).toMatchObject({ adopted: true, inForce: { generation: 7 } });
    failing.close();
    expect(inKernel()).toEqual(before);
    expect(await reaches()).toBe(true);
    datapath.open();
    datapath.attach();
    expect(datapath.look()).toEqual([]);
  },
);

test('the first start of a datapath that ends before `attach` leaves no BPF maps in the pin path', () => {
  datapath.close();
  detach(topology.pinPath);
  datapath.open();
  datapath.close();
  expect(readdirSync(topology.pinPath).filter((name) => name.startsWith('maps-'))).toEqual([]);
});

test('`detach` removes the pins of Weir, and keeps those of other programs in the pin path', () => {
  const other = join(topology.pinPath, 'maps-of-other');
  mkdirSync(other);
  mkdirSync(join(topology.pinPath, 'filling-2'));
  datapath.close();
  detach(topology.pinPath);
  expect(readdirSync(topology.pinPath)).toEqual(['maps-of-other']);
  rmSync(other, { recursive: true });
  detach(topology.pinPath);
  expect(existsSync(topology.pinPath)).toBe(false);
});

test.each([
  ['TCX links', false],
  ['filters of clsact', true],
])(
  '`detach` loses no packet of a flow that the policy allows, if the BPF programs are attached by %s',
  async (_, forceClsact) => {
    datapath.close();
    detach(topology.pinPath);
    datapath = new LocalDatapath(datapathOptions(topology.pinPath, { forceClsact }));
    datapath.open();
    datapath.attach();
    datapath.stage(allowAll, 7);
    datapath.flip();
    const ping = topology.client.start('ping', ['-n', '-i', '0.002', '-c', '500', '-W', '1', ADDRESSES.server]);
    let output = '';
    ping.stdout?.on('data', (data: Buffer) => (output += data.toString()));
    const ended = once(ping, 'close');
    await expect.poll(() => output).toContain('icmp_seq=20 ');
    datapath.close();
    detach(topology.pinPath);
    expect(output).not.toContain('icmp_seq=400 ');
    await ended;
    expect(output).toContain('500 packets transmitted, 500 received');
  },
);

test('`detach` keeps the BPF programs if it cannot remove the guard (nftables rules)', async () => {
  datapath.close();
  const { PATH } = process.env;
  try {
    process.env.PATH = '/nonexistent';
    expect(() => detach(topology.pinPath)).toThrow('remove the guard: spawnSync nft ENOENT');
  } finally {
    process.env.PATH = PATH;
  }
  expect(await reaches()).toBe(true);
});

test.each([
  ['the same mark mask', {}, 7],
  ['another mark mask', { markMask: 0x0f00_0000 }, null],
  // The lowest bit of both masks is equal.
  ['a mark mask with the same lowest bit', { markMask: 0x0170_0000 }, null],
])(
  '`open` of a process with %s finds a policy in force only if the attached BPF programs have the same mark mask as the process',
  (_, more, generation) => {
    datapath.close();
    const next = new LocalDatapath(datapathOptions(topology.pinPath, more));
    const seen: unknown[] = [];
    next.found = (inForce) => seen.push(inForce?.generation ?? null);
    next.open();
    next.close();
    expect(seen).toEqual([generation]);
  },
);

test('`open` finds no policy in force if the guard (nftables rules) is missing', async () => {
  datapath.close();
  await topology.node.must('nft', 'delete table inet weir');
  const seen: unknown[] = [];
  datapath.found = (inForce) => seen.push(inForce);
  datapath.open();
  expect(seen).toEqual([null]);
});
