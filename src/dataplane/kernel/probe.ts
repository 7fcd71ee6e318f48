import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { release } from 'node:os';
import type { Missing } from '#dataplane/datapath.js';
import { libbpf } from '#libc/libbpf.js';
import { membarrier } from '#libc/libc.js';

const CAP_NET_ADMIN = 12;
const CAP_SYS_ADMIN = 21;
const CAP_BPF = 39;
const MINIMUM_KERNEL = [6, 1] as const;
const MEMBARRIER_CMD_QUERY = 0;
const MEMBARRIER_CMD_GLOBAL = 1;

/** What this kernel, this user or this installation lacks. Changes nothing. */
export function probe(objectPath: string): Missing[] {
  const missing: Missing[] = [];
  const need = (what: string, there: boolean, sentence: string): void => {
    if (!there) missing.push({ what, sentence });
  };
  const has = capabilities();
  need('CAP_NET_ADMIN', has(CAP_NET_ADMIN), 'The capability CAP_NET_ADMIN is missing: run as root, or grant it.');
  need('CAP_BPF', has(CAP_BPF) || has(CAP_SYS_ADMIN), 'The capability CAP_BPF is missing: run as root, or grant it.');
  const [major = 0, minor = 0] = release().split('.').map(Number);
  const recent = major > MINIMUM_KERNEL[0] || (major === MINIMUM_KERNEL[0] && minor >= MINIMUM_KERNEL[1]);
  need('kernel', recent, `Linux 6.1 or later is needed, and this is ${release()}.`);
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

function capabilities(): (capability: number) => boolean {
  const status = readFileSync('/proc/self/status', 'utf8');
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
  return (capability) => (effective >> BigInt(capability)) % 2n === 1n;
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
