import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';

test('a command ends although a library keeps a socket open, names the open resource, and keeps its exit code', () => {
  const folder = mkdtempSync(join(tmpdir(), 'weir-program-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const held = join(folder, 'held.cjs');
  writeFileSync(held, "require('node:net').createServer().listen(0, '127.0.0.1');\n");
  const program = fileURLToPath(new URL('../../bin/weir.js', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, ['--require', held, program, 'policy', 'show'], {
    encoding: 'utf8',
    env: { ...process.env, WEIR_SERVER: 'http://127.0.0.1:1' },
  });
  expect(stderr).toContain('weir: still open at the end: TCPServerWrap');
  expect(status).not.toBe(0);
});
