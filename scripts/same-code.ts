// Checks that src and statecharts in the work tree differ from a commit, the argument, only in comments.
import './usage.js';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';

/**
 * Checks that `src` and `statecharts` in the work tree differ from a commit only in comments: `npm run
 * same-code -- COMMIT`. The JavaScript of each file, emitted without comments, must be equal. All sections of
 * the BPF objects must be equal, except symbol tables and BTF sections; BTF contains line numbers.
 */
const [base = 'HEAD'] = process.argv.slice(2);
const folders = ['src', 'statecharts'];

function git(...words: string[]): string {
  return execFileSync('git', words, { encoding: 'utf8', maxBuffer: 2 ** 28 });
}

function emitted(text: string, fileName: string): string {
  const { outputText } = ts.transpileModule(text, {
    fileName,
    compilerOptions: {
      target: ts.ScriptTarget.ES2023,
      module: ts.ModuleKind.ESNext,
      removeComments: true,
      verbatimModuleSyntax: true,
    },
  });
  // Replaces each sequence of white space by one space, because a removed comment may leave an empty line.
  return outputText.replace(/\s+/g, ' ');
}

/** Compiles one BPF object. Returns the SHA-256 of each compared section, by the name of the section. */
function sectionsOf(root: string, name: string, folder: string): Map<string, string> {
  const object = join(folder, `${name}.o`);
  const include = `/usr/include/${execFileSync('uname', ['-m'], { encoding: 'utf8' }).trim()}-linux-gnu`;
  const flags = ['-O2', '-g', '-target', 'bpf', '-mcpu=v3', `-I${include}`];
  const source = join('src/dataplane/bpf', `${name}.bpf.c`);
  execFileSync('clang', [...flags, '-c', source, '-o', object], { cwd: root });
  execFileSync('llvm-strip', ['-g', object]);
  const headers = execFileSync('llvm-readelf', ['-S', '-W', object], { encoding: 'utf8' });
  const bytes = readFileSync(object);
  const sections = new Map<string, string>();
  for (const [, section = '', offset = '', size = ''] of headers.matchAll(
    /^\s*\[\s*\d+\]\s+(\S+)\s+\w+\s+[0-9a-f]+\s+([0-9a-f]+)\s+([0-9a-f]+)/gm,
  )) {
    if (/^(\.BTF|\.BTF\.ext|\.rel\.BTF.*|\.strtab|\.symtab|\.llvm.*)$/.test(section)) continue;
    const start = Number.parseInt(offset, 16);
    const content = bytes.subarray(start, start + Number.parseInt(size, 16));
    sections.set(section, createHash('sha256').update(content).digest('hex'));
  }
  return sections;
}

const differences: string[] = [];
const before = new Set(git('ls-tree', '-r', '--name-only', base, ...folders).split('\n'));
const now = new Set(git('ls-files', '-co', '--exclude-standard', ...folders).split('\n'));
let compared = 0;
for (const path of new Set([...before, ...now])) {
  if (!path.endsWith('.ts') || path.endsWith('.d.ts')) continue;
  if (!before.has(path) || !now.has(path)) differences.push(`${path}: only on one side`);
  else {
    compared++;
    if (emitted(git('show', `${base}:${path}`), path) !== emitted(readFileSync(path, 'utf8'), path))
      differences.push(`${path}: emits other JavaScript`);
  }
}

const scratch = mkdtempSync(join(tmpdir(), 'weir-same-code-'));
let sections = 0;
try {
  git('worktree', 'add', '--detach', '--quiet', join(scratch, 'base'), base);
  for (const name of ['weir', 'weir_ipv6', 'third_party_hooks']) {
    if (!before.has(`src/dataplane/bpf/${name}.bpf.c`)) {
      differences.push(`${name}.bpf.o: only on one side`);
      continue;
    }
    const old = sectionsOf(join(scratch, 'base'), name, scratch);
    const fresh = sectionsOf('.', name, scratch);
    for (const section of new Set([...old.keys(), ...fresh.keys()])) {
      sections++;
      if (old.get(section) !== fresh.get(section)) differences.push(`${name}.bpf.o: section ${section} differs`);
    }
  }
} finally {
  git('worktree', 'remove', '--force', join(scratch, 'base'));
  rmSync(scratch, { recursive: true });
}

for (const difference of differences) process.stdout.write(`${difference}\n`);
process.stdout.write(
  `same-code: ${compared} files and ${sections} sections compared with ${base}, ${differences.length} differ\n`,
);
process.exitCode = differences.length === 0 ? 0 : 1;
