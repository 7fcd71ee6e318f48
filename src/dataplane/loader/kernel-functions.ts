import { existsSync, readFileSync } from 'node:fs';
import { release } from 'node:os';
import { lacking } from '#libc/proc/capabilities.js';

const BTF = '/sys/kernel/btf';
const TIMEOUTS = '/proc/sys/net/netfilter/nf_conntrack';
const NETFILTER_LINK = 'bpf_nf_link_attach';
const CONNTRACK_LOOKUP = 'bpf_skb_ct_lookup';
const CONNTRACK_TIMEOUT = 'bpf_ct_change_timeout';
const NAMES = [NETFILTER_LINK, CONNTRACK_LOOKUP, CONNTRACK_TIMEOUT] as const;
type Name = (typeof NAMES)[number];

/**
 * The functions of `NAMES` that the BTF of the kernel itself contains. This BTF has 5 MB, so it is read only
 * once.
 */
let inKernel: readonly Name[] | undefined;

function hasFunction(name: Name): boolean {
  inKernel ??= functionsIn('vmlinux');
  return inKernel.includes(name);
}

function functionsIn(file: string): readonly Name[] {
  const path = `${BTF}/${file}`;
  if (!existsSync(path)) return [];
  const names = readFileSync(path);
  return NAMES.filter((name) => names.includes(`\0${name}\0`, 0, 'latin1'));
}

/** Returns whether the kernel has netfilter programs: Linux 6.4 with CONFIG_NETFILTER_BPF_LINK. */
export function hasNetfilterPrograms(): boolean {
  return hasFunction(NETFILTER_LINK);
}

/**
 * Returns whether BPF programs can search conntrack. False if the module nf_conntrack is not loaded; it may
 * be loaded later. Only a process with CAP_SYS_ADMIN can use the functions of a module, because the kernel
 * gives no other process the BTF of modules.
 */
export function hasConntrackLookup(): boolean {
  return hasConntrackFunction(CONNTRACK_LOOKUP);
}

/**
 * Returns the times in milliseconds for which conntrack keeps an established TCP connection and UDP flow.
 * Returns null if BPF programs cannot set these times, which needs Linux 6.0. Also returns null on CPUs with
 * a weak memory order, because the BPF code for the map `nat_aliases` has no barriers.
 */
export function conntrackKeepMs(): { readonly tcp: number; readonly udp: number } | null {
  if (process.arch !== 'x64' || !hasConntrackFunction(CONNTRACK_TIMEOUT)) return null;
  const ms = (name: string): number => Math.min(0xffff_ffff, 1_000 * readSeconds(`${TIMEOUTS}_${name}`));
  const times = { tcp: ms('tcp_timeout_established'), udp: ms('udp_timeout_stream') };
  return times.tcp > 0 && times.udp > 0 ? times : null;
}

const readSeconds = (path: string): number => Number(readFileSync(path, 'utf8'));

function hasConntrackFunction(name: Name): boolean {
  return hasFunction(name) || (!lacksModuleBtf() && functionsIn('nf_conntrack').includes(name));
}

/** Returns whether the kernel refuses the BTF of its modules to this process. */
export function lacksModuleBtf(): boolean {
  return lacking(['CAP_SYS_ADMIN']).length > 0;
}

const SKIP_NEIGH = 4;

/**
 * Returns the flags for calls of `bpf_fib_lookup` that need only the route, without the neighbour entry.
 * Kernels before 6.3 have no such flag, so the function returns 0 for them.
 */
export function fibFlags(kernelRelease = release()): number {
  return isSince(6, 3, kernelRelease) ? SKIP_NEIGH : 0;
}

/**
 * Returns whether BPF programs can read the kernel's counter of route changes. Kernels before 6.2 do not
 * allow this.
 */
export function canCopyRoutes(kernelRelease = release()): boolean {
  return isSince(6, 2, kernelRelease);
}

function isSince(wantedMajor: number, wantedMinor: number, kernelRelease: string): boolean {
  const [major = 0, minor = 0] = kernelRelease.split('.').map((part) => Number.parseInt(part, 10));
  return major > wantedMajor || (major === wantedMajor && minor >= wantedMinor);
}
