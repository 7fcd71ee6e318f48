import { existsSync, rmSync } from 'node:fs';
import { closeFd, linkInfo, openPinned, pin } from '#dataplane/loader/bpf-fd.js';
import type { Direction } from '#dataplane/loader/direction.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check } from '#libc/libc.js';

const TCX = { ingress: 46, egress: 47 } as const;
const CLSACT_POINT = { ingress: 1, egress: 2 } as const;
const REPLACE = 1;
export const CLSACT = { handle: 0x57e1, priority: 1 };

/**
 * Attaches a BPF program to the TCX hook of an interface. If the link pinned at `pinPath` already attaches a
 * BPF program to that interface, replaces that BPF program.
 */
export function attachTcx(programFd: number, ifindex: number, direction: Direction, pinPath: string): void {
  const attached = tcxProgram(ifindex, pinPath);
  if (attached !== undefined) {
    const fd = openPinned(pinPath);
    try {
      check(`update link of interface ${ifindex}`, libbpf().bpf_link_update(fd, programFd, null));
    } finally {
      closeFd(fd);
    }
    return;
  }
  rmSync(pinPath, { force: true });
  const fd = check(
    `attach to ${direction} of interface ${ifindex}`,
    libbpf().bpf_link_create(programFd, ifindex, TCX[direction], null),
  );
  try {
    pin(fd, pinPath);
  } finally {
    closeFd(fd);
  }
}

/**
 * Returns the id of the BPF program that the link pinned at `pinPath` attaches to this interface; undefined
 * if the pinned link does not exist or belongs to another interface.
 */
export function tcxProgram(ifindex: number, pinPath: string): number | undefined {
  if (!existsSync(pinPath)) return undefined;
  const fd = openPinned(pinPath);
  try {
    const link = linkInfo(fd);
    return link.ifindex === ifindex ? link.programId : undefined;
  } finally {
    closeFd(fd);
  }
}

const MAX_PROGRAMS = 64;

/** Returns the ids of all BPF programs on a TCX hook, including programs that Weir did not attach. */
export function tcxPrograms(ifindex: number, direction: Direction): number[] {
  const ids = new Uint32Array(MAX_PROGRAMS);
  const count = Uint32Array.of(MAX_PROGRAMS);
  const result = libbpf().bpf_prog_query(ifindex, TCX[direction], 0, new Uint32Array(1), ids, count);
  return result < 0 ? [] : [...ids.subarray(0, count[0])];
}

/**
 * Returns true if `error`, which an attach to a TCX hook has thrown, means that the kernel is older than
 * Linux 6.6 and has no TCX.
 */
export function isTcxUnsupported(error: unknown): boolean {
  return error instanceof KernelFailure && (error.code === 'EINVAL' || error.code === 'EOPNOTSUPP');
}

function clsactHook(ifindex: number, direction: Direction): Uint8Array {
  const bytes = new Uint8Array(24);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, 24n, true);
  view.setInt32(8, ifindex, true);
  view.setUint32(12, CLSACT_POINT[direction], true);
  return bytes;
}

function clsactOptions(programFd: number, flags: number): Uint8Array {
  const bytes = new Uint8Array(32);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, 32n, true);
  view.setInt32(8, programFd, true);
  view.setUint32(12, flags, true);
  view.setUint32(20, CLSACT.handle, true);
  view.setUint32(24, CLSACT.priority, true);
  return bytes;
}

export function attachClsact(programFd: number, ifindex: number, direction: Direction): void {
  const hook = clsactHook(ifindex, direction);
  const created = libbpf().bpf_tc_hook_create(hook);
  if (created < 0 && created !== -17) check(`make clsact on interface ${ifindex}`, created);
  check(
    `attach filter to ${direction} of interface ${ifindex}`,
    libbpf().bpf_tc_attach(hook, clsactOptions(programFd, REPLACE)),
  );
}

/**
 * Returns the id of the BPF program of Weir's clsact filter on this hook; undefined if the hook has no filter
 * of Weir.
 */
export function clsactProgram(ifindex: number, direction: Direction): number | undefined {
  const options = clsactOptions(0, 0);
  if (libbpf().bpf_tc_query(clsactHook(ifindex, direction), options) < 0) return undefined;
  return new DataView(options.buffer).getUint32(16, true);
}

export function detachClsact(ifindex: number, direction: Direction): void {
  if (clsactProgram(ifindex, direction) === undefined) return;
  check(
    `detach filter of ${direction} of interface ${ifindex}`,
    libbpf().bpf_tc_detach(clsactHook(ifindex, direction), clsactOptions(0, 0)),
  );
}
