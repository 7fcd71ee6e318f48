import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as { scripts: Record<string, string> };
const names = Object.keys(scripts);

describe('usage of the scripts of npm', () => {
  it.each(names)('`npm run %s -- --help` prints the comment of the script, and does nothing else', (name) => {
    const file = /scripts\/[\w-]+[.](?:sh|ts)/.exec(scripts[name] ?? '')?.[0] ?? '';
    const lines = readFileSync(file, 'utf8').split('\n');
    const comment = lines[lines[0]?.startsWith('#!') === true ? 1 : 0]?.replace(/^(#|\/\/) /, '');
    // npm runs a script by passing its command line, with further arguments appended, to a shell.
    const out = execFileSync('sh', ['-c', `${scripts[name]} --help`], { encoding: 'utf8', timeout: 60_000 });
    expect([out.split('\n')[0], /set -|^import /m.test(out)]).toEqual([comment, false]);
  });

  it('no npm script has a pre-script, which npm would run before it passes --help', () => {
    expect(names.filter((name) => /^(pre|post)/.test(name) && names.includes(name.replace(/^(pre|post)/, '')))).toEqual(
      [],
    );
  });
});
