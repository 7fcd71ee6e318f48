import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { release, version } from 'node:os';
import type { Missing } from '#contracts/datapath/datapath.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { membarrier } from '#libc/libc.js';
import { type Capability, lacking } from '#libc/proc/capabilities.js';
import { hasPacketLog } from './namespace-lock.js';
import { isBpfFileSystem } from './pins.js';

const NEEDED: readonly Capability[] = ['CAP_NET_ADMIN', 'CAP_BPF', 'CAP_PERFMON'];
/** Linux capabilities that a process with CAP_SYS_ADMIN does not need in addition. */
const IN_SYS_ADMIN: ReadonlySet<Capability> = new Set(['CAP_BPF', 'CAP_PERFMON']);
const MINIMUM_KERNEL = [6, 1] as const;
const MEMBARRIER_CMD_QUERY = 0;
const MEMBARRIER_CMD_GLOBAL = 1;

/**
 * Returns the features that Weir needs, and that this kernel, this process or this installation lacks.
 * Changes nothing on the machine.
 */
export function probe(objectPath: string, pinPath: string): Missing[] {
  const missing: Missing[] = [];
  const need = (what: string, there: boolean, sentence: string): void => {
    if (!there) missing.push({ what, sentence });
  };
  const lacked = lacking([...NEEDED, 'CAP_SYS_ADMIN']);
  const isAdministrator = !lacked.includes('CAP_SYS_ADMIN');
  for (const name of NEEDED) {
    const has = !lacked.includes(name) || (isAdministrator && IN_SYS_ADMIN.has(name));
    need(name, has, `The capability ${name} is missing: run as root, or grant it.`);
  }
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const recent = major > MINIMUM_KERNEL[0] || (major === MINIMUM_KERNEL[0] && minor >= MINIMUM_KERNEL[1]);
  need('kernel', recent, `Linux 6.1 or later is needed, and this is ${release()}.`);
  // With PREEMPT_RT, one softirq can interrupt another softirq on the same CPU. Two packets would then
  // overwrite the same per-CPU buffers of the datapath.
  need(
    'preempt_rt',
    !/PREEMPT_RT/.test(version()),
    'The kernel is built with PREEMPT_RT, which the datapath does not support.',
  );
  need(
    'btf',
    existsSync('/sys/kernel/btf/vmlinux'),
    'The kernel has no BTF: it was built without CONFIG_DEBUG_INFO_BTF.',
  );
  const fileSystems = existsSync('/proc/filesystems') ? readFileSync('/proc/filesystems', 'utf8') : '';
  const hasBpfFs = /\tbpf$/m.test(fileSystems);
  need('bpffs', hasBpfFs, 'The kernel has no BPF file system, so the datapath cannot be pinned.');
  if (hasBpfFs && !isAdministrator) {
    need(
      'CAP_SYS_ADMIN',
      isBpfFileSystem(pinPath),
      `No BPF file system is mounted at ${pinPath}: mount it, or grant the capability CAP_SYS_ADMIN.`,
    );
  }
  need('libbpf', loads(libbpf), 'The library libbpf.so.1 is not installed (Debian: apt-get install libbpf1).');
  need(
    'nft',
    spawnSync('nft', ['--version']).status === 0,
    'The command nft is not installed (Debian: apt-get install nftables); the guard needs it.',
  );
  need('nfnetlink_log', hasPacketLog(), 'The kernel has no nfnetlink_log, which locks the network namespace.');
  need('membarrier', hasMembarrier(), 'The kernel offers no global membarrier (nohz_full switches it off).');
  need('object', existsSync(objectPath), `The compiled datapath ${objectPath} is missing: run npm run setup.`);
  return missing;
}

function loads(load: () => unknown): boolean {
  try {
    load();
    return true;
  } catch {
    return false;
  }
}

function hasMembarrier(): boolean {
  const commands = membarrier(MEMBARRIER_CMD_QUERY);
  return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL) !== 0;
}
