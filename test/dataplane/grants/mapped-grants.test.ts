import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { LINE, linesFor, PATTERN, PATTERNS } from '#dataplane/grants/grant-layout.js';
import { MappedGrants } from '#dataplane/grants/mapped-grants.js';
import { stageProgram } from '#dataplane/thread/staging.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { compile } from '#policy/compile/compile.js';
import { loadForTest } from '#test/dataplane/loaded.js';
import { group, policy, rule } from '#test/policy/sample.js';

const CAPACITY = 1_024;
const NOW = 1_000_000_000n;

const withName = compile(
  policy([group(['10.0.0.0/8'], [rule({ hostname: { kind: 'exact', labels: ['a', 'test'], text: 'a.test' } })])]),
);

let folder: string;
/** The descriptors of files that the test maps in place of the BPF maps. */
let maps: { grants: number; patterns: number };
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'mapped-grants-'));
  const file = (name: string, bytes: number): number => {
    const fd = openSync(join(folder, name), 'w+');
    truncateSync(join(folder, name), bytes);
    return fd;
  };
  maps = {
    grants: file('grants', linesFor(CAPACITY) * LINE.words * 4),
    patterns: file('patterns', PATTERNS * PATTERN.words * 4),
  };
});
afterAll(() => {
  for (const fd of Object.values(maps)) closeSync(fd);
  rmSync(folder, { recursive: true });
});

function make(fds: Readonly<Record<string, number>> = maps): MappedGrants {
  return new MappedGrants({ ipv4: { mapFd: (name) => fds[name] ?? -1 }, ipv6: null }, CAPACITY);
}

/** Returns the names of the maps that this process has mapped. */
function mapped(): string[] {
  const files = readFileSync('/proc/self/maps', 'utf8').match(new RegExp(`${folder}/\\w+`, 'g')) ?? [];
  return [...new Set(files)].map((path) => path.slice(folder.length + 1)).sort();
}

test('the BPF maps of DNS grants (addresses learned for hostname patterns) are mapped into memory with the first policy that has hostname patterns, and unmapped at the end', () => {
  const grants = make();
  grants.makeRoom([], () => {});
  grants.fill(0, []);
  grants.activated([0]);
  grants.sweep(NOW);
  const granted = [{ pattern: 'a', addresses: [1], expiresAtNs: NOW * 100n }];
  expect([grants.add(granted, NOW), grants.patternsOf(1, NOW), grants.learned(NOW)]).toEqual([0, [], []]);
  expect([grants.addressesOf('ipv4'), grants.patterns, mapped()]).toEqual([
    { entries: 0, capacity: CAPACITY },
    { entries: 0, capacity: PATTERNS },
    [],
  ]);
  grants.makeRoom(['a'], () => {});
  grants.fill(1, ['a']);
  grants.activated([1]);
  expect([grants.add(granted, NOW), grants.patternsOf(1, NOW), mapped()]).toEqual([0, ['a'], ['grants', 'patterns']]);
  grants.unmap();
  expect([mapped(), grants.patternsOf(1, NOW)]).toEqual([[], []]);
});

test('a process maps the DNS grants (addresses learned for hostname patterns) of an earlier process into memory only if the policy in force has hostname patterns', () => {
  const first = make();
  first.makeRoom(['a'], () => {});
  first.fill(1, ['a']);
  first.add([{ pattern: 'a', addresses: [7], expiresAtNs: NOW * 100n }], NOW);
  first.unmap();
  const second = make();
  second.recover([1]);
  expect([mapped(), second.addressesOf('ipv4').entries]).toEqual([['grants', 'patterns'], 1]);
  second.unmap();
  const third = make();
  third.recover([0]);
  expect(mapped()).toEqual([]);
  third.makeRoom(['b'], () => {});
  expect([third.addressesOf('ipv4').entries, third.patterns.entries]).toEqual([0, 0]);
  third.unmap();
});

test('a policy is refused and changes nothing in the kernel if one of the BPF maps of DNS grants cannot be mapped, and is accepted later', () => {
  const kernel = loadForTest({ grantCapacity: CAPACITY });
  try {
    const fds: Record<string, number> = { grants: maps.grants };
    const grants = make(fds);
    const stage = (): void => stageProgram({ ...kernel, grants }, withName, 1);
    expect(stage).toThrow(KernelFailure);
    expect([kernel.slots.staged, mapped()]).toEqual([false, []]);
    fds.patterns = maps.patterns;
    stage();
    expect([kernel.slots.staged, mapped()]).toEqual([true, ['grants', 'patterns']]);
    grants.unmap();
  } finally {
    kernel.close();
  }
});
