import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Builds the project before any test, since worker threads and child processes run built code. */
export default function build(): void {
  execFileSync('bash', ['scripts/build.sh'], { cwd: root, stdio: 'inherit' });
  const folder = execFileSync('bash', [join(root, 'scripts/kube-apiserver.sh'), '--folder'], { encoding: 'utf8' });
  if (!existsSync(join(folder.trim(), 'kube-apiserver')))
    process.stdout.write('tests against a real Kubernetes API server are left out: npm run kube-apiserver builds it\n');
}
