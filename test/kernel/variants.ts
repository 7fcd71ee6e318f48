import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LAYOUT_VERSION } from '#contracts/datapath-numbers.js';
import { ACTIVE } from '#dataplane/activate/slots.js';
import { attachTcx } from '#dataplane/attach/attach-program.js';
import type { Interface } from '#dataplane/attach/interfaces.js';
import { networkNamespace } from '#dataplane/attach/ownership.js';
import { pin } from '#dataplane/loader/bpf-fd.js';
import { mapSetsIn } from '#dataplane/object/map-set.js';
import { libbpf } from '#libc/libbpf.js';
import { check } from '#libc/libc.js';
import { memoryAt } from '#libc/library.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { TestRun } from '#libc/test-run.js';

const PREFIX = 'weir-variant-';

export type Variants = {
  /** Path of a BPF object of this build in which struct flow has another layout. */
  readonly shiftedFlows: string;
  /** Path of a BPF object that the verifier refuses. */
  readonly refused: string;
  /** Path of a BPF object in which the initialization of the sweep timer fails with ENOMEM twenty times. */
  readonly scarceTimer: string;
  /** Path of a BPF object with map layout 1 (an early build), whose fixed policy allows port 8000. */
  readonly layout1: string;
  remove(): void;
};

export function compileVariants(): Variants {
  const folder = mkdtempSync(join(tmpdir(), PREFIX));
  const variant = variantsIn(folder);
  return {
    shiftedFlows: variant('shifted-flows', 'weir.h', (source) =>
      source.replace(/(\t__u32 ifindex\[2\];.*\n)(\t__u32 packets\[2\];.*\n)/, '$2$1'),
    ),
    refused: variant('refused', 'flow/sweep.h', (source) =>
      source.replace('\tkey.use = KEY_USED;', '\tkey.use = *(volatile __u8 *)(long)request->found;'),
    ),
    scarceTimer: variant('scarce-timer', 'flow/sweep.h', (source) =>
      source.replace('failed = bpf_timer_init(', 'failed = sweep_timer->reserved++ < 20 ? -12 : bpf_timer_init('),
    ),
    layout1: compile('test/kernel/layout-1', join(folder, 'layout-1.o')),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Returns a BPF object of this build whose forward judge the verifier refuses. */
export function compileRefusedJudge(): { readonly path: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), PREFIX));
  const path = variantsIn(folder)('refused-judge', 'nat/forward_judge.h', (source) =>
    source.replace('mark = skb->mark;', 'mark = *(volatile __u32 *)(long)skb->mark;'),
  );
  return { path, remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Returns a BPF object with the XDP program `pass`, which passes each packet. */
export function compileXdp(): { readonly path: string; remove(): void } {
  const folder = mkdtempSync(join(tmpdir(), PREFIX));
  writeFileSync(join(folder, 'weir.bpf.c'), '__attribute__((section("xdp"))) int pass(void *frame) { return 2; }\n');
  return {
    path: compile(folder, join(folder, 'xdp.o')),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Returns a function that edits a copy of one source file, compiles it, and returns the object's path. */
function variantsIn(folder: string) {
  return (name: string, file: string, edit: (source: string) => string): string => {
    const sources = join(folder, name);
    cpSync('src/dataplane/bpf', sources, { recursive: true });
    const before = readFileSync(join(sources, file), 'utf8');
    const after = edit(before);
    if (after === before) throw new Error(`${file} is not what the variant ${name} was made of`);
    writeFileSync(join(sources, file), after);
    return compile(sources, join(folder, `${name}.o`));
  };
}

function compile(sources: string, object: string): string {
  const flags = ['-O2', '-g', '-target', 'bpf', '-mcpu=v3'];
  execFileSync('clang', [...flags, '-I/usr/include/x86_64-linux-gnu', '-c', `${sources}/weir.bpf.c`, '-o', object]);
  return object;
}

/**
 * Creates the guard (nftables rules of Weir) as builds up to map layout 5 did. Its chain on the forward hook
 * has the priority `filter` and accepts each packet with the mark bit.
 */
export function makeEarlierGuard(): void {
  const lines = [
    'add table inet weir',
    'add counter inet weir dropped',
    'add chain inet weir guard { type filter hook forward priority filter; policy accept; }',
    'add rule inet weir guard meta mark & 0x100000 != 0 accept',
    ...['lan0', 'wan0'].map((name) => `add rule inet weir guard iifname "${name}" counter name "dropped" drop`),
  ];
  execFileSync('nft', ['-f', '-'], { input: lines.join('\n') });
}

/** Loads a BPF object with map layout 1, and pins its maps and links as a node with that layout did. */
export function startLayout1(
  object: string,
  pinPath: string,
  interfaces: readonly Interface[],
  generation: number,
): void {
  const bpf = libbpf();
  const loaded = bpf.bpf_object__open_file(
    object,
    new Uint8Array(new BigUint64Array([80n, ...Array(9).fill(0n)]).buffer),
  );
  if (loaded === null) throw new Error(`open ${object}`);
  const map = (name: string): bigint => {
    const found = bpf.bpf_object__find_map_by_name(loaded, name);
    if (found === null) throw new Error(`layout 1 has no map ${name}`);
    return found;
  };
  const slotLines = 1_024;
  check('resize', bpf.bpf_map__set_max_entries(map('program'), 2 * slotLines));
  check('resize', bpf.bpf_map__set_max_entries(map('flows'), 65_536));
  const size = new BigUint64Array(1);
  const settings = bpf.bpf_map__initial_value(map('.rodata'), size);
  if (settings === null) throw new Error('layout 1 has no settings');
  // Set the first fields of struct settings in map layout 1: slot_lines, mark_mask, guard_bit, reverse_path.
  new Uint32Array(memoryAt(settings, 16)).set([slotLines, 0x00f0_0000, 0x0010_0000, 0]);
  check('load', bpf.bpf_object__load(loaded));
  const programFd = (name: string): number => {
    const found = bpf.bpf_object__find_program_by_name(loaded, name);
    if (found === null) throw new Error(`layout 1 has no program ${name}`);
    return bpf.bpf_program__fd(found);
  };

  const folder = join(pinPath, 'maps-0a1b2c3d4e5f');
  const links = join(pinPath, `links-${networkNamespace()}`);
  for (const path of [folder, links]) mkdirSync(path, { recursive: true });
  for (const name of ['program', 'active', 'flows', 'counters', 'sweep']) {
    pin(bpf.bpf_map__fd(map(name)), join(folder, name));
  }
  // Write the header of a compiled policy in map layout 1: magic, layout version, number of lines,
  // generation.
  const line = new Uint32Array(16);
  line.set([0x52494557, 1, 1, generation, 0]);
  const set = (name: string, key: number, value: Uint8Array): void => {
    const keyBytes = new Uint8Array(Uint32Array.of(key).buffer);
    check('set', bpf.bpf_map_update_elem(bpf.bpf_map__fd(map(name)), keyBytes, value, 0));
  };
  set('program', slotLines, new Uint8Array(line.buffer));
  set('active', 0, new Uint8Array(Uint32Array.of(5 * 2 + 1, 1, 0, 0).buffer));
  for (const { ifindex } of interfaces)
    attachTcx(programFd('weir_ingress'), ifindex, 'ingress', join(links, `${ifindex}`));
  const start = new TestRun(programFd('weir_start_sweep'), undefined, undefined, undefined);
  // Retry while the result is 2: the kernel had no free memory for the timer (see `startSweep`).
  let failed = start.run();
  for (let tries = 0; failed === 2 && tries < 500; tries++) {
    execFileSync('sleep', ['0.001']);
    failed = start.run();
  }
  if (failed !== 0) throw new Error(`sweep: step ${failed}`);
  bpf.bpf_object__close(loaded);
}

/**
 * Changes the layout version of the policy in force, as if a build with another layout had activated the
 * policy.
 */
export function claimOtherLayout(pinPath: string): void {
  const set = mapSetsIn(pinPath).at(-1);
  if (set === undefined) throw new Error('nothing is pinned');
  const active = new MappedMemory('active', set.fd('active'), ACTIVE.bytes);
  active.words[ACTIVE.layoutVersion] = LAYOUT_VERSION + 1;
  active.unmap();
  set.close();
}
