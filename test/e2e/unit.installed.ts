import { readFileSync, readlinkSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRig, type NodeRig } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('unit', []);
});
afterAll(() => rig?.remove());

/** The sum of the bits of CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON and CAP_BPF. */
const FIVE = '000000c000003400';

/** Returns what the kernel reports about the process of the node. */
function processOfNode() {
  const folder = `/proc/${rig.node.pid}`;
  const status = readFileSync(`${folder}/status`, 'utf8');
  const field = (name: string): string => new RegExp(`^${name}:\\s+(\\S+)`, 'm').exec(status)?.[1] ?? '';
  const root = readlinkSync(`${folder}/root`);
  const users = readFileSync(`${root}/etc/passwd`, 'utf8');
  return {
    program: readlinkSync(`${folder}/exe`).slice(root.length),
    words: readFileSync(`${folder}/cmdline`, 'utf8').split('\0').slice(0, 3),
    hasOwnRoot: root !== '/',
    user: new RegExp(`^([^:]+):[^:]*:${field('Uid')}:`, 'm').exec(users)?.[1],
    capabilities: ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'].map(field),
    noNewPrivileges: field('NoNewPrivs'),
    seccomp: field('Seccomp'),
    umask: field('Umask'),
  };
}

const AS_UNIT = {
  program: '/usr/bin/node',
  words: ['/usr/bin/node', '/usr/bin/weir', 'run'],
  hasOwnRoot: true,
  user: 'weir',
  capabilities: [FIVE, FIVE, FIVE, FIVE, FIVE],
  noNewPrivileges: '1',
  /** SECCOMP_MODE_FILTER: a seccomp filter is active. */
  seccomp: '2',
  umask: '0077',
};

test('the installed service runs a node as the user weir with five capabilities, also after a restart', async () => {
  expect(processOfNode()).toEqual(AS_UNIT);
  const { pid } = rig.node;
  await rig.node.restart();
  await rig.node.ready({ except: ['policy_ready'] });
  expect(rig.node.pid).not.toBe(pid);
  expect(processOfNode()).toEqual(AS_UNIT);
});
