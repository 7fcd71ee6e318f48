import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Obstacle, obstacleTo } from '#cli/files/unreadable-file.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const USER = { name: 'weir', uid: 901, gids: [901, 902] };
const OTHER = 950;

function file(folder: string, mode: number, uid = 0, gid = 0): string {
  const path = join(folder, 'key.pem');
  writeFileSync(path, '');
  chownSync(path, uid, gid);
  chmodSync(path, mode);
  return path;
}

function openFolder(): string {
  const folder = temporaryFolder();
  chmodSync(folder, 0o755);
  return folder;
}

const shown = (obstacle: Obstacle | null) => obstacle && { path: obstacle.path, lacks: obstacle.lacks };

describe('obstacleTo', () => {
  it.each([
    ['others may read', 0o604, 0, 0],
    ['the primary group may read', 0o640, 0, 901],
    ['a further group may read', 0o640, 0, 902],
    ['the owner may read', 0o400, 901, 0],
  ])(
    '`obstacleTo` (the path that prevents a user from reading a file) returns null if the mode of the file lets the user read the file: %s',
    (_, mode, uid, gid) => {
      expect(obstacleTo(file(openFolder(), mode, uid, gid), USER)).toBeNull();
    },
  );

  it.each([
    ['only another owner may read', 0o600, 0, 0],
    ['only another group may read', 0o640, 0, OTHER],
    ['others may read, but the group of the user may not', 0o604, 0, 901],
    ['others may read, but the user, who is the owner, may not', 0o044, 901, 0],
  ])(
    '`obstacleTo` (the path that prevents a user from reading a file) returns the file if the mode of the file does not let the user read the file: %s',
    (_, mode, uid, gid) => {
      const path = file(openFolder(), mode, uid, gid);
      expect(shown(obstacleTo(path, USER))).toEqual({ path, lacks: 'read' });
    },
  );

  it('`obstacleTo` (the path that prevents a user from reading a file) returns the first parent folder that the user may not enter', () => {
    const folder = openFolder();
    mkdirSync(join(folder, 'closed/open'), { recursive: true });
    chmodSync(join(folder, 'closed'), 0o744);
    const path = file(join(folder, 'closed/open'), 0o644);
    expect(shown(obstacleTo(path, USER))).toEqual({ path: join(folder, 'closed'), lacks: 'search' });
  });

  it('`obstacleTo` (the path that prevents a user from reading a file) examines the target of a symbolic link, and the folders on the way to the target', () => {
    const folder = openFolder();
    mkdirSync(join(folder, 'archive'));
    const path = file(join(folder, 'archive'), 0o600);
    symlinkSync('archive/key.pem', join(folder, 'link.pem'));
    expect(shown(obstacleTo(join(folder, 'link.pem'), USER))).toEqual({ path, lacks: 'read' });
    chmodSync(join(folder, 'archive'), 0o700);
    expect(shown(obstacleTo(join(folder, 'link.pem'), USER))).toEqual({
      path: join(folder, 'archive'),
      lacks: 'search',
    });
  });

  it('`obstacleTo` (the path that prevents a user from reading a file) returns null for a file that does not exist, and for a circle of symbolic links', () => {
    const folder = openFolder();
    symlinkSync('b', join(folder, 'a'));
    symlinkSync('a', join(folder, 'b'));
    expect(obstacleTo(join(folder, 'missing'), USER)).toBeNull();
    expect(obstacleTo(join(folder, 'a'), USER)).toBeNull();
  });
});
