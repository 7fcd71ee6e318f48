import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, join } from 'node:path';
import type { Script } from 'node:vm';
import { beforeEach, expect, test } from 'vitest';
import { temporaryFolder } from '#test/store/temporary-folder.js';
import { built } from '#threads/built-file.js';

const { compile, execute } = createRequire(import.meta.url)(built('../bin/bundle.cjs')) as {
  readonly compile: (file: string) => Script;
  readonly execute: (script: Script, file: string) => unknown;
};

let file: string;
beforeEach(() => {
  file = join(temporaryFolder(), 'example.bundle.js');
  writeFileSync(file, wrapped('"use strict"; exports.answer = (() => 42)(); exports.of = importMetaUrl;'));
});
const wrapped = (body: string): string => `(function (exports, require, module, importMetaUrl) {\n${body}\n})`;
const cache = (): void => void execFileSync(process.execPath, [built('../bin/code-cache.cjs'), file]);
const exported = (): unknown => ({ answer: 42, of: `file://${file}` });

test('a JavaScript bundle of the build runs with its V8 code cache', () => {
  cache();
  const script = compile(file);
  expect([script.cachedDataRejected, execute(script, file)]).toEqual([false, exported()]);
});

test('a JavaScript bundle of the build runs without a V8 code cache', () => {
  expect(execute(compile(file), file)).toEqual(exported());
});

test('a JavaScript bundle is compiled from its source if V8 cannot use the code cache', () => {
  writeFileSync(`${file}.cache`, 'the cache of another version');
  const script = compile(file);
  expect([script.cachedDataRejected, execute(script, file)]).toEqual([true, exported()]);
});

test('the build has written a code cache for the command and for each thread', () => {
  const bundles = readdirSync(built('node')).filter((name) => name.endsWith('.bundle.js'));
  expect(bundles.map((name) => basename(name, '.bundle.js'))).toEqual(
    expect.arrayContaining(['weir', 'datapath.worker', 'service-plane.worker', 'policy.worker', 'dns.worker']),
  );
  expect(bundles.filter((name) => !existsSync(built(`node/${name}.cache`)))).toEqual([]);
});

test('each JavaScript bundle of the build has ASCII characters only', () => {
  const bundles = readdirSync(built('node')).filter((name) => name.endsWith('.bundle.js'));
  const others = bundles.filter((name) => readFileSync(built(`node/${name}`)).some((byte) => byte > 0x7f));
  expect([bundles.length > 0, others]).toEqual([true, []]);
});

test('a JavaScript bundle is compiled from its source if the code cache belongs to a source of another length', () => {
  cache();
  rmSync(file);
  writeFileSync(file, wrapped('exports.other = true;'));
  const script = compile(file);
  expect([script.cachedDataRejected, execute(script, file)]).toEqual([true, { other: true }]);
});
