import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LAYOUT_VERSION } from '#contracts/datapath/datapath-numbers.js';
import { ACTIVE } from '#dataplane/activate/slots.js';
import { mapSetsIn } from '#dataplane/object/map-set.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { built } from '#threads/built-file.js';

const PREFIX = 'weir-variant-';

export type Variants = {
  /** Path of a BPF object of this build in which struct flow has another layout. */
  readonly shiftedFlows: string;
  /** Path of a BPF object that the verifier refuses. */
  readonly refused: string;
  /** Path of a BPF object in which the initialization of the sweep timer fails with ENOMEM twenty times. */
  readonly scarceTimer: string;
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
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Returns a BPF object of this build whose netfilter program the verifier refuses. */
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

const FLAGS = ['-O2', '-g', '-target', 'bpf', '-mcpu=v3', '-I/usr/include/x86_64-linux-gnu'];
/** Objects of earlier runs, by the hash of their sources and flags. One object takes clang some seconds. */
const CACHE = built('bpf-variants');

/** Compiles `weir.bpf.c` of a folder to `object`, or copies the object that the same sources gave before. */
function compile(sources: string, object: string): string {
  const compiler = execFileSync('clang', ['--version']);
  const hash = createHash('sha256').update(JSON.stringify(FLAGS)).update(compiler);
  for (const name of (readdirSync(sources, { recursive: true }) as string[]).sort())
    if (/\.[ch]$/.test(name)) hash.update(`${name}\0`).update(readFileSync(join(sources, name)));
  const cached = join(CACHE, `${hash.digest('hex')}.o`);
  if (!existsSync(cached)) {
    execFileSync('clang', [...FLAGS, '-c', `${sources}/weir.bpf.c`, '-o', object]);
    mkdirSync(CACHE, { recursive: true });
    // Another test file that compiles the same sources at this moment does not read a part of the object.
    cpSync(object, `${cached}.${process.pid}`);
    renameSync(`${cached}.${process.pid}`, cached);
  }
  cpSync(cached, object);
  return object;
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
