import { spawn } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { listLinks } from '#dataplane/attach/interfaces/netlink-interfaces.js';
import { Programs, programsOn } from '#dataplane/attach/weir-hooks.js';
import { type BaseChain, baseChains } from '#dataplane/guard/nftables.js';
import type { ProgramInfo } from '#dataplane/loader/bpf-fd.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';

type Printed = (signal: AbortSignal) => AsyncIterable<Uint8Array>;
const ip =
  (...words: readonly string[]): Printed =>
  (signal) =>
    printed('ip', ['-j', '-d', ...words], signal);

/**
 * For each file name in the support dump, a function that yields one part of the node's network state. It
 * runs `ip` or `nft` in the network namespace of this process.
 */
export const NETWORK_TEXTS: Readonly<Record<string, Printed>> = {
  'links.json': ip('-s', 'link', 'show'),
  'addresses.json': ip('address', 'show'),
  'routes.json': ip('-4', 'route', 'show', 'table', 'all'),
  'routes6.json': ip('-6', 'route', 'show', 'table', 'all'),
  'rules.json': ip('rule', 'show'),
  'neighbours.json': ip('neighbour', 'show'),
  'nftables-weir.txt': (signal) => printed('nft', ['list', 'table', 'inet', 'weir'], signal),
};

/** Returns every nftables base chain, also of third parties, without its rules. */
export function chains(): readonly BaseChain[] {
  return baseChains();
}

export type HookPrograms = {
  readonly interface: string;
  readonly direction: Direction;
  readonly by: 'tcx' | 'clsact' | 'xdp';
  readonly program: ProgramInfo | null;
};

/**
 * Returns the BPF programs on the ingress and egress hooks of every interface. Of programs attached by TCX
 * and of XDP programs, it returns all, including those of third parties. Of programs attached by clsact, it
 * returns only those of Weir.
 */
export function hookPrograms(): HookPrograms[] {
  const programs = new Programs();
  return listLinks().flatMap(({ name, ifindex, xdpPrograms }) => [
    ...xdpPrograms.map((id) => ({
      interface: name,
      direction: 'ingress' as const,
      by: 'xdp' as const,
      program: programs.info(id) ?? null,
    })),
    ...DIRECTIONS.flatMap((direction) =>
      programsOn(ifindex, direction).map(({ by, id }) => ({
        interface: name,
        direction,
        by,
        program: programs.info(id) ?? null,
      })),
    ),
  ]);
}

const SETTINGS = [
  'fs/file-max',
  'kernel/bpf_stats_enabled',
  'kernel/panic_on_oops',
  'kernel/unprivileged_bpf_disabled',
  'net/core/bpf_jit_enable',
  'net/core/bpf_jit_harden',
  'net/core/netdev_budget',
  'net/core/netdev_max_backlog',
  'net/core/rmem_max',
  'net/core/somaxconn',
  'net/core/wmem_max',
  'net/ipv4/ip_forward',
  'net/ipv4/ip_local_port_range',
  'net/ipv4/ip_nonlocal_bind',
  'net/ipv4/ip_unprivileged_port_start',
  'net/ipv4/tcp_syncookies',
  'net/ipv6/conf/all/forwarding',
  'net/netfilter/nf_conntrack_count',
  'net/netfilter/nf_conntrack_max',
];
const SETTINGS_OF_INTERFACES = [
  'accept_local',
  'arp_filter',
  'forwarding',
  'route_localnet',
  'rp_filter',
  'send_redirects',
];
const INTERFACE_SETTINGS = 'net/ipv4/conf';

/**
 * Returns the values of the sysctls that affect forwarding and BPF. The key is the path below `/proc/sys`;
 * the value is null if this kernel does not have the sysctl.
 */
export async function settings(): Promise<Readonly<Record<string, string | null>>> {
  const names = await readdir(join('/proc/sys', INTERFACE_SETTINGS)).catch(() => []);
  const ofInterfaces = names.flatMap((name) =>
    SETTINGS_OF_INTERFACES.map((setting) => `${INTERFACE_SETTINGS}/${name}/${setting}`),
  );
  const read = async (path: string): Promise<[string, string | null]> => [
    path,
    await readFile(join('/proc/sys', path), 'utf8').then(
      (value) => value.trim(),
      () => null,
    ),
  ];
  return Object.fromEntries(await Promise.all([...SETTINGS, ...ofInterfaces].map(read)));
}

const MAX_COMPLAINT = 300;

/**
 * Yields the standard output of a command in chunks. If the exit code is not 0, throws an error with the
 * first 300 characters of stderr. An abort of the signal kills the command.
 */
async function* printed(command: string, args: readonly string[], signal: AbortSignal): AsyncGenerator<Buffer> {
  const child = spawn(command, [...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    signal,
    killSignal: 'SIGKILL',
    env: PATH,
  });
  const complaint = text(child.stderr);
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('close', resolve);
  });
  // If the reader of the output stops early, no code awaits `ended`. Without this `catch`, a failure of the
  // command would then be an unhandled rejection.
  ended.catch(() => {});
  try {
    for await (const chunk of child.stdout) yield chunk as Buffer;
    const code = await ended;
    if (code !== 0)
      throw new Error(`${command} ${args.join(' ')}: ${(await complaint).trim().slice(0, MAX_COMPLAINT)}`);
  } finally {
    child.kill('SIGKILL');
  }
}

/**
 * The command gets only the environment variable PATH, because other variables of this process may contain
 * secrets.
 */
const PATH = { PATH: process.env.PATH ?? '/usr/sbin:/usr/bin:/sbin:/bin' };
