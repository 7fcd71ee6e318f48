import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { builtIpv6Object, builtObject } from '#dataplane/loader/bpf-object.js';

const MAX_STACK = 512;
const MAX_FRAMES = 8;
/**
 * Linux 6.1 rounds the stack of each BPF function up to a multiple of 32 bytes. Later kernels round up to 16
 * bytes.
 */
const ROUNDED_TO = 32;
const INSTRUCTION = 8;

type Frame = { bytes: number; readonly calls: Set<string> };

/**
 * Returns, for each function of the BPF object, its bytes of stack and the functions that it calls or passes
 * to a helper as a callback.
 */
function framesOf(path: string): Map<string, Frame> {
  const tool = execFileSync('bash', ['-c', 'source scripts/llvm.sh; find_tool llvm-objdump'], {
    encoding: 'utf8',
  }).trim();
  const lines = execFileSync(tool, ['-dr', path], { encoding: 'utf8', maxBuffer: 2 ** 28 }).split('\n');
  const frames = new Map<string, Frame>();
  /** Names of functions, by section and number of their first instruction. */
  const starts = new Map<string, string>();
  forEachLine(lines, (line, section) => {
    const [, at = '', name = ''] = /^([0-9a-f]+) <([^>]+)>:/.exec(line) ?? [];
    if (name === '' || name.startsWith('LBB')) return;
    frames.set(name, { bytes: 0, calls: new Set() });
    starts.set(`${section} ${Number.parseInt(at, 16) / INSTRUCTION}`, name);
  });
  let frame: Frame | undefined;
  forEachLine(lines, (line, section, next) => {
    const name = /^[0-9a-f]+ <([^>]+)>:/.exec(line)?.[1];
    if (name !== undefined) frame = frames.get(name) ?? frame;
    const [, index, bytes = '', text = ''] = /^\s+(\d+):\t((?:[0-9a-f]{2} )+)\s*(.*)$/.exec(line) ?? [];
    if (frame === undefined || index === undefined) return;
    const depth = Number(/r10 - (\d+)/.exec(text)?.[1] ?? /r\d+ \+= -(\d+)$/.exec(text)?.[1] ?? 0);
    if (depth <= MAX_STACK) frame.bytes = Math.max(frame.bytes, depth);
    const symbol = /R_BPF_64_(?:32|64)\s+(\S+)/.exec(next)?.[1];
    const isCall = bytes.startsWith('85 10 ');
    let called = symbol;
    if (symbol === '.text' || (isCall && symbol === undefined)) {
      // The target of a call is an offset in instructions. The address of a callback is an offset in bytes.
      const to = isCall
        ? Number(/call (-?\d+)/.exec(text)?.[1]) + 1 + (symbol === undefined ? Number(index) : 0)
        : Number(/= (\d+) ll/.exec(text)?.[1]) / INSTRUCTION;
      called = starts.get(`${symbol ?? section} ${to}`);
      if (called === undefined) throw new Error(`what is called here is no function: ${line}`);
    }
    if (called !== undefined && frames.has(called)) frame.calls.add(called);
  });
  return frames;
}

function forEachLine(lines: readonly string[], see: (line: string, section: string, next: string) => void): void {
  let section = '';
  for (const [index, line] of lines.entries()) {
    section = /^Disassembly of section (\S+):/.exec(line)?.[1] ?? section;
    see(line, section, lines[index + 1] ?? '');
  }
}

test.each([
  ['the BPF object', builtObject, 'weir_ingress'],
  ['the BPF object for IPv6', builtIpv6Object, 'weir_prove'],
])('every call chain of %s fits into the 512 bytes of stack of the oldest supported kernel', (_, path, deep) => {
  const frames = framesOf(path);
  const known = new Map<string, { readonly bytes: number; readonly path: readonly string[] }>();
  const deepest = (name: string): { readonly bytes: number; readonly path: readonly string[] } => {
    const before = known.get(name);
    if (before !== undefined) return before;
    const { bytes, calls } = frames.get(name) as Frame;
    const below = [...calls].map(deepest).sort((a, b) => b.bytes - a.bytes)[0] ?? { bytes: 0, path: [] };
    const own = Math.max(1, Math.ceil(bytes / ROUNDED_TO)) * ROUNDED_TO;
    const found = { bytes: own + below.bytes, path: [`${name} ${bytes}`, ...below.path] };
    known.set(name, found);
    return found;
  };
  const length = (name: string): number =>
    1 + Math.max(0, ...[...(frames.get(name) as Frame).calls].map((called) => length(called)));
  const programs = [...frames.keys()].filter((name) => name.startsWith('weir_'));
  expect(programs).toContain(deep);
  expect(deepest(deep).path.length).toBeGreaterThan(4);
  for (const program of programs) {
    const { bytes, path } = deepest(program);
    expect(bytes, path.join(' → ')).toBeLessThanOrEqual(MAX_STACK);
    expect(length(program), program).toBeLessThanOrEqual(MAX_FRAMES);
  }
});
