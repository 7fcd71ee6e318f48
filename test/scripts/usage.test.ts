import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
const files = [...new Set(Object.values(scripts).flatMap((line) => line.match(/scripts\/[\w-]+[.]sh/g) ?? []))];

describe('usage of the scripts of npm', () => {
  it.each(files)('%s prints its comment for --help, and does nothing else', (file) => {
    const [, first = ''] = readFileSync(file, 'utf8').split('\n');
    const out = execFileSync('bash', [file, '--help'], { encoding: 'utf8', timeout: 10_000 });
    expect([out.split('\n')[0], out.includes('set -')]).toEqual([first.slice(2), false]);
  });
});
