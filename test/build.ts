import { execFileSync } from 'node:child_process';

/** Worker threads and started nodes run built code, so a test run begins with a build. */
export default function setup(): void {
  execFileSync('bash', ['scripts/build.sh'], { stdio: 'inherit' });
}
