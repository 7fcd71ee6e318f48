import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeFolders } from '#files/make-folders.js';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'folders-'));
});
afterEach(() => rmSync(root, { recursive: true }));
const codeOf = (path: string): string => {
  try {
    return makeFolders(path) ?? 'nothing made';
  } catch (failure) {
    return (failure as NodeJS.ErrnoException).code ?? 'no code';
  }
};

describe('makeFolders', () => {
  test('`makeFolders` makes a folder and its missing parent folders with the given mode, and returns the topmost new folder', () => {
    expect(makeFolders(join(root, 'a', 'b', 'c'), 0o700)).toBe(join(root, 'a'));
    for (const below of ['a', 'a/b', 'a/b/c']) expect(statSync(join(root, below)).mode & 0o777).toBe(0o700);
    expect(makeFolders(join(root, 'a', 'b'))).toBeUndefined();
  });

  test('`makeFolders` follows a symbolic link to a folder', () => {
    symlinkSync(root, join(root, 'link'));
    expect(makeFolders(join(root, 'link', 'new'))).toBe(join(root, 'link', 'new'));
    expect(statSync(join(root, 'new')).isDirectory()).toBe(true);
  });

  test('`makeFolders` resolves `..` after a symbolic link to the parent of the target of the link', () => {
    mkdirSync(join(root, 'far', 'target'), { recursive: true });
    symlinkSync(join(root, 'far', 'target'), join(root, 'link'));
    const path = `${root}/link/../b/c`;
    expect(makeFolders(path)).toBe(`${root}/link/../b`);
    expect(statSync(join(root, 'far', 'b', 'c')).isDirectory()).toBe(true);
    expect(existsSync(join(root, 'b'))).toBe(false);
  });

  test('`makeFolders` makes the folder before `..` and the folder after `..`', () => {
    expect(makeFolders(`${root}/a/../b/`)).toBe(`${root}/a`);
    expect(readdirSync(root).sort()).toEqual(['a', 'b']);
  });

  test('`makeFolders` makes the folders of a relative path', () => {
    const path = relative(process.cwd(), join(root, 'a', 'b'));
    expect(makeFolders(path)).toBe(dirname(path));
    expect(statSync(join(root, 'a', 'b')).isDirectory()).toBe(true);
  });

  test('`makeFolders` throws if a file or a dangling link has the name of a folder', () => {
    writeFileSync(join(root, 'file'), '');
    symlinkSync(join(root, 'nowhere'), join(root, 'link'));
    expect(codeOf(join(root, 'file'))).toBe('EEXIST');
    expect(codeOf(join(root, 'file', 'below'))).toBe('ENOTDIR');
    expect(codeOf(join(root, 'link'))).toBe('EEXIST');
  });

  test('`makeFolders` throws in a file system in which no folder can be made', () => {
    expect(codeOf('/proc/weir/data')).toBe('ENOENT');
  });
});
