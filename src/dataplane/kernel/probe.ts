import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { release, version } from 'node:os';
import type { Missing } from '#dataplane/datapath.js';
import { lacking } from '#libc/capabilities.js';
import { libbpf } from '#libc/libbpf.js';
import { membarrier } from '#libc/libc.js';

const MINIMUM_KERNEL = [6, 1] as const;
const MEMBARRIER_CMD_QUERY = 0;
const MEMBARRIER_CMD_GLOBAL = 1;

/** What this kernel, this user or this installation lacks. Changes nothing. */
export function probe(objectPath: string): Missing[] {
  const missing: Missing[] = [];
  const need = (what: string, there: boolean, sentence: string): void => {
    if (!there) missing.push({ what, sentence });
  };
  const lacked = lacking(['CAP_NET_ADMIN', 'CAP_BPF', 'CAP_SYS_ADMIN']);
  const mayLoad = !lacked.includes('CAP_BPF') || !lacked.includes('CAP_SYS_ADMIN');
  need(
    'CAP_NET_ADMIN',
    !lacked.includes('CAP_NET_ADMIN'),
    'The capability CAP_NET_ADMIN is missing: run as root, or grant it.',
  );
  need('CAP_BPF', mayLoad, 'The capability CAP_BPF is missing: run as root, or grant it.');
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const recent = major > MINIMUM_KERNEL[0] || (major === MINIMUM_KERNEL[0] && minor >= MINIMUM_KERNEL[1]);
  need('kernel', recent, `Linux 6.1 or later is needed, and this is ${release()}.`);
  // There one softirq may interrupt another, and packets would be judged in each other's memory.
  need(
    'preempt_rt',
    !/PREEMPT_RT/.test(version()),
    'The kernel is one of PREEMPT_RT, which the datapath is not made for.',
  );
  need(
    'btf',
    existsSync('/sys/kernel/btf/vmlinux'),
    'The kernel has no BTF: it was built without CONFIG_DEBUG_INFO_BTF.',
  );
  const fileSystems = existsSync('/proc/filesystems') ? readFileSync('/proc/filesystems', 'utf8') : '';
  need('bpffs', /\tbpf$/m.test(fileSystems), 'The kernel has no BPF file system, so nothing can be pinned.');
  need('libbpf', loads(libbpf), 'The library libbpf.so.1 is not installed (Debian: apt-get install libbpf1).');
  need(
    'nft',
    spawnSync('nft', ['--version']).status === 0,
    'The command nft is not installed (Debian: apt-get install nftables); the guard needs it.',
  );
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
