import type { ChildProcess } from 'node:child_process';
import { ADDRESSES } from '#cli/tour/topology.js';
import type { NodeRig } from './rig.js';

const UPSTREAM_READY_MS = 60_000;

/** The configuration section `dns` of a node whose upstream is the resolver that `startUpstream` starts. */
export const DNS_SECTION = {
  listen: [`${ADDRESSES.nodeLan}:53`],
  upstreams: [`${ADDRESSES.server}:53`],
  rebind_allow: ['*.example.com'],
};

/** The output of `dig`: DNS status (`none` without an answer), answer records, and the whole text. */
export type Dug = { readonly status: string; readonly answers: readonly string[]; readonly text: string };

/** Runs `dig` on the client against `server`, with the additional arguments `words`. */
export async function dig(rig: NodeRig, server: string, ...words: string[]): Promise<Dug> {
  const options = ['+tries=1', '+time=3', '+nocookie'];
  const { stdout } = await rig.topology.client.run('dig', `@${server}`, ...options, ...words);
  const answers = /;; ANSWER SECTION:\n([\s\S]*?)\n\n/.exec(stdout)?.[1]?.split('\n') ?? [];
  const spaced = answers.map((line) => line.replaceAll(/\s+/g, ' '));
  return { status: /status: (\w+)/.exec(stdout)?.[1] ?? 'none', answers: spaced, text: stdout };
}

/** Returns the answer records of `dig` without TTL and class. */
export const data = ({ answers }: Dug): string[] => answers.map((line) => line.replace(/ \d+ IN /, ' '));

/**
 * Starts the resolver `dnsmasq` with a few names on the server host, and with the names of `hosts`, each as
 * `name,address,…`. Resolves when the resolver answers.
 */
export async function startUpstream(
  { topology: { server } }: NodeRig,
  hosts: readonly string[] = [],
): Promise<ChildProcess> {
  const words = [
    '--no-daemon --conf-file=/dev/null --no-resolv --no-hosts --bind-interfaces --user=root --group=root --pid-file=',
    `--listen-address=${ADDRESSES.server} --port=53 --local=/com/ --local=/org/ --max-ttl=300 --local-ttl=300`,
    `--host-record=api.example.com,${ADDRESSES.server} --cname=www.example.com,api.example.com`,
    `--host-record=other.example.org,${ADDRESSES.server} --host-record=inside.example.org,10.9.9.9`,
    '--host-record=six.example.com,10.77.2.2,2001:db8::1 --txt-record=text.example.com,hello',
    ...hosts.map((host) => `--host-record=${host}`),
  ];
  const child = server.start('dnsmasq', words.join(' ').split(' '));
  const deadline = performance.now() + UPSTREAM_READY_MS;
  for (;;) {
    const { stdout } = await server.run(
      'dig',
      `@${ADDRESSES.server}`,
      '+short',
      '+tries=1',
      '+time=1',
      'api.example.com',
    );
    if (stdout.trim() === ADDRESSES.server) return child;
    if (performance.now() > deadline) throw new Error('the upstream does not answer');
  }
}
