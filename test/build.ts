import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Worker threads and child processes run built code, so the build runs before any test. */
export default function build(): void {
  execFileSync('bash', ['scripts/build.sh'], { cwd: fileURLToPath(new URL('..', import.meta.url)), stdio: 'inherit' });
}
