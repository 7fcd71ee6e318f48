import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { NamespaceCommands } from '#cli/tour/topology.js';

/**
 * Runs a command with the files that an administrator would install on a workstation. `--kill-child` ends
 * each process that the command started, browsers included, with the first process.
 */
const SANDBOX = ['unshare', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc'];

export type Outcome = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

/**
 * A computer of a user in a network namespace: its own trusted certificates, resolver, home folder and
 * processes. The files of the machine stay as they are.
 */
export class Workstation {
  readonly home: string;
  readonly roots: string;
  readonly #binds: string;

  /** `anchors` are the certificates that the workstation trusts, `resolver` its name server. */
  constructor(
    readonly namespace: NamespaceCommands,
    readonly folder: string,
    readonly anchors: Readonly<Record<string, string>>,
    resolver: string,
  ) {
    const certificates = join(folder, 'certs');
    const resolvConf = join(folder, 'resolv.conf');
    this.home = join(folder, 'home');
    this.roots = join(certificates, 'ca-certificates.crt');
    for (const made of [certificates, this.home]) mkdirSync(made, { recursive: true });
    for (const [name, pem] of Object.entries(anchors)) writeFileSync(join(certificates, `${name}.pem`), pem);
    execFileSync('openssl', ['rehash', certificates]);
    writeFileSync(this.roots, Object.values(anchors).join(''));
    writeFileSync(resolvConf, `nameserver ${resolver}\noptions timeout:2 attempts:1\n`);
    this.#binds = `mount --bind ${certificates} /etc/ssl/certs && mount --bind ${resolvConf} /etc/resolv.conf`;
  }

  /** Starts a command. Killing the child ends every process below it. */
  start(command: string, args: readonly string[], descriptors: readonly (number | 'pipe')[] = []): ChildProcess {
    const [unshare = '', ...options] = SANDBOX;
    const words = [...options, 'sh', '-c', `${this.#binds} && cd ${this.home} && exec "$@"`, 'sh', command, ...args];
    const environment = {
      PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin',
      HOME: this.home,
      TMPDIR: this.home,
      NODE_EXTRA_CA_CERTS: this.roots,
      LANG: 'C.UTF-8',
    };
    return this.namespace.start(unshare, words, environment, descriptors);
  }

  /** Runs a command until it ends, `limitMs` at most. `code` is null if the limit ended it. */
  async run(command: string, args: readonly string[], limitMs = 20_000): Promise<Outcome> {
    const child = this.start(command, args);
    let stdout = '';
    let stderr = '';
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      stderr += text;
    });
    const limit = setTimeout(() => child.kill('SIGKILL'), limitMs);
    const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
    clearTimeout(limit);
    return { code, stdout, stderr };
  }
}
