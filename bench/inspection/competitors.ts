import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import { ADDRESSES } from '#cli/tour/topology.js';
import { generateCa } from '#service-plane/ca/generate-ca.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { PORTS, PROXY_CPU, type Site, untilItAnswers } from './site.js';

export type Competitor = 'squid' | 'haproxy' | 'mitmproxy';
/**
 * A proxy under test: the server port at which the client reaches the proxy, and the processes of the proxy
 * whose CPU time is measured.
 */
export type ProxyUnderTest = {
  readonly name: string;
  readonly site: Site;
  readonly port: number;
  readonly pids: () => readonly number[];
};

const INNER = { squid: 3_130, haproxy: 8_445, mitmproxy: 8_446 } as const;
/**
 * If a proxy does not reply, the error message contains this many characters from the end of the proxy's
 * output.
 */
const OUTPUT_LIMIT = 4_096;
/** The user as which squid of the Debian package runs after it has dropped root privileges. */
const SQUID_USER = 'proxy';

/**
 * Starts the proxies on the node, all on CPU `PROXY_CPU`. Each proxy has a server port of its own: an
 * nftables rule redirects connections to this port to the port where the proxy listens.
 */
export async function startCompetitors(
  site: Site,
  competitors: readonly Competitor[],
): Promise<readonly ProxyUnderTest[]> {
  const { node } = site.topology;
  const ca = generateCa({ commonName: 'bench', days: 30 });
  const keyPem = ca.key.export({ type: 'pkcs8', format: 'pem' }).toString();
  const bundle = await site.file('ca-bundle.pem', ca.certPem + keyPem);
  chmodSync(site.folder, 0o755);
  const rules = competitors.map(
    (competitor) => `add rule ip nat prerouting tcp dport ${PORTS[competitor]} redirect to :${INNER[competitor]}`,
  );
  const chain = 'add chain ip nat prerouting { type nat hook prerouting priority dstnat; }';
  await node.must('nft', ['add table ip nat', chain, ...rules].join('; '));
  const proxies: ProxyUnderTest[] = [];
  for (const competitor of competitors) {
    const child = await START[competitor](site, bundle);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-OUTPUT_LIMIT);
      });
    }
    await untilItAnswers(site, PORTS[competitor]).catch((failure: Error) => {
      throw new Error(`${competitor}: ${failure.message}\n${output}`);
    });
    proxies.push({ name: competitor, site, port: PORTS[competitor], pids: () => familyOf(child.pid ?? 0) });
  }
  return proxies;
}

const onProxyCpu = (site: Site, ...words: readonly string[]): ChildProcess =>
  site.topology.node.start('taskset', ['-c', PROXY_CPU, ...words]);

const START: Readonly<Record<Competitor, (site: Site, bundle: string) => Promise<ChildProcess>>> = {
  squid: async (site, bundle) => {
    const folder = `${site.folder}/squid`;
    mkdirSync(folder);
    const id = (flag: string): number => Number(execFileSync('id', [flag, SQUID_USER], { encoding: 'utf8' }));
    chownSync(folder, id('-u'), id('-g'));
    const certgen = '/usr/lib/squid/security_file_certgen';
    execFileSync('setpriv', [
      `--reuid=${SQUID_USER}`,
      '--clear-groups',
      certgen,
      '-c',
      '-s',
      `${folder}/db`,
      '-M',
      '16MB',
    ]);
    const conf = await site.file(
      'squid.conf',
      `http_port 127.0.0.1:3128
https_port ${INNER.squid} intercept ssl-bump tls-cert=${bundle} generate-host-certificates=on dynamic_cert_mem_cache_size=16MB
sslcrtd_program ${certgen} -s ${folder}/db -M 16MB
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all
tls_outgoing_options cafile=${site.rootFile}
http_access allow all
cache deny all
access_log none
cache_log ${folder}/cache.log
pid_filename ${folder}/squid.pid
coredump_dir ${folder}
hosts_file ${site.hostsFile}
max_filedescriptors 65536
shutdown_lifetime 1 second
`,
    );
    return onProxyCpu(site, 'squid', '-N', '-f', conf);
  },
  haproxy: async (site, bundle) => {
    const ca = await site.file('haproxy-leaf.pem', leafOf(bundle));
    const conf = await site.file(
      'haproxy.cfg',
      `global
  nbthread 1
  maxconn 8000
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
frontend in
  bind :${INNER.haproxy} ssl crt ${ca} alpn h2,http/1.1
  default_backend out
backend out
  server one ${ADDRESSES.server}:${PORTS.haproxy} ssl verify required ca-file ${site.rootFile} verifyhost ${SERVER_NAME} sni str(${SERVER_NAME}) alpn http/1.1
`,
    );
    return onProxyCpu(site, 'haproxy', '-db', '-f', conf);
  },
  mitmproxy: async (site) => {
    const set = (option: string): string[] => ['--set', option];
    return onProxyCpu(
      site,
      ...['mitmdump', '-q', '--mode', 'transparent', '--listen-port', String(INNER.mitmproxy)],
      ...set(`confdir=${site.folder}/mitmproxy`),
      ...set(`ssl_verify_upstream_trusted_ca=${site.rootFile}`),
    );
  },
};

/**
 * Returns the certificate and key of the benchmark's CA. In this setup haproxy generates no certificates, and
 * presents the certificate of the CA to clients.
 */
function leafOf(bundle: string): string {
  return execFileSync('cat', [bundle], { encoding: 'utf8' });
}

function familyOf(pid: number): readonly number[] {
  const children = execFileSync('sh', ['-c', `pgrep -P ${pid} || true`], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line !== '')
    .map(Number);
  return [pid, ...children.flatMap(familyOf)];
}
