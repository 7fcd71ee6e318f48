import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Builds the project before any test, since worker threads and child processes run built code. */
export default function build(): void {
  execFileSync('bash', ['scripts/build.sh'], { cwd: fileURLToPath(new URL('..', import.meta.url)), stdio: 'inherit' });
}
