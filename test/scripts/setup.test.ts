import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

/**
 * Creates a folder for PATH with links to all commands of this machine, except those whose name matches
 * `absent`.
 */
function pathWithout(absent: RegExp): string {
  const folder = temporaryFolder();
  chmodSync(folder, 0o755);
  for (const bin of ['/usr/local/bin', '/usr/bin', dirname(process.execPath)]) {
    for (const name of readdirSync(bin)) {
      if (absent.test(name)) continue;
      try {
        symlinkSync(join(bin, name), join(folder, name));
      } catch {}
    }
  }
  return folder;
}

/**
 * Runs scripts/setup.sh without librocksdb and without the commands whose name matches `absent`. `before` is
 * a command that starts the script, such as `setpriv`.
 */
function setup(absent: RegExp, ...before: string[]): { status: number | null; said: string[] } {
  const folder = temporaryFolder();
  chmodSync(folder, 0o755);
  mkdirSync(join(folder, 'scripts'));
  copyFileSync(fileURLToPath(new URL('../../scripts/setup.sh', import.meta.url)), join(folder, 'scripts/setup.sh'));
  const hide = `
    mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work
    for library in /usr/lib/*-linux-gnu/librocksdb.so.*; do
      mknod "/mnt/upper/$(basename "$library")" c 0 0; libraries=$(dirname "$library")
    done
    mount -t overlay -o "lowerdir=$libraries,upperdir=/mnt/upper,workdir=/mnt/work" none "$libraries"
    exec "$@"`;
  const command = [...before, 'env', `PATH=${pathWithout(absent)}`, 'bash', join(folder, 'scripts/setup.sh')];
  const { status, stdout } = spawnSync('unshare', ['-m', 'bash', '-c', hide, 'hide', ...command], { encoding: 'utf8' });
  return { status, said: stdout.trim().split('\n') };
}

const without = expect.stringMatching(/^setup: A node does not start without RocksDB 7\.8 or later/);
const nobody = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'];

skipUnless(process.getuid?.() === 0, LACKS.root).describe('setup script', () => {
  it('the setup script lists all missing packages if the machine has no apt-get, and exits with 1 if RocksDB is missing', () => {
    expect(setup(/^(apt-get|clang.*)$/)).toEqual({
      status: 1,
      said: [
        expect.stringMatching(
          /^setup: missing here, and there is no apt-get; install by hand \(Debian's names\): clang librocksdb/,
        ),
        without,
      ],
    });
  });

  it('the setup script prints the apt-get command that root must run if the user is not root', () => {
    expect(setup(/^clang.*$/, ...nobody)).toEqual({
      status: 1,
      said: [
        expect.stringMatching(/^setup: missing here, and only root can install it: apt-get install clang librocksdb/),
        without,
      ],
    });
  });
});
