import { open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from '#cli/tour/topology.js';
import { makeCertificates, SERVER_NAME } from '#test/service-plane/certificates.js';

/**
 * The CPU of the proxies under test. The load generator and the server run on `LOAD_CPU` instead, so that
 * they take no CPU time from the proxies.
 */
export const PROXY_CPU = '0';
export const LOAD_CPU = '1';
/**
 * The server listens on all these TCP ports. Each proxy under test has a port of its own, so that the node
 * can redirect connections by port.
 */
export const PORTS = { direct: 443, squid: 444, haproxy: 445, mitmproxy: 446, raw: 447 } as const;
const BODY = 'hello world';
/** The size of the resource /large, in bytes. */
export const LARGE_BYTES = 10 * 2 ** 30;

/**
 * A client, a node and a server in network namespaces, with a folder of files that all their processes can
 * read.
 */
export type Site = {
  readonly topology: Topology;
  readonly folder: string;
  readonly rootFile: string;
  /**
   * The path of a file in the format of `/etc/hosts` that maps the server name to the address of the server.
   */
  readonly hostsFile: string;
  file(name: string, content: string): Promise<string>;
  remove(): Promise<void>;
};

export async function createSite(tag: string): Promise<Site> {
  const topology = await createTopology(tag);
  const folder = await temporaryFolder(tag);
  const file = async (name: string, content: string): Promise<string> => {
    const path = join(folder, name);
    await writeFile(path, content, { mode: 0o644 });
    return path;
  };
  const { good, rootPem } = makeCertificates();
  const site: Site = {
    topology,
    folder,
    rootFile: await file('root.pem', rootPem),
    hostsFile: await file('hosts', `${ADDRESSES.server} ${SERVER_NAME}\n127.0.0.1 localhost\n`),
    file,
    remove: () => topology.remove(),
  };
  const cert = await file('server.pem', good.certPem);
  const key = await file('server.key', good.keyPem);
  const listens = Object.values(PORTS).map((port) => `listen ${port} ssl http2 backlog=4096;`);
  // The file is sparse, so that its 10 GiB take no disk space.
  const large = await open(await file('large', ''), 'r+');
  await large.truncate(LARGE_BYTES);
  await large.close();
  const conf = await file(
    'nginx.conf',
    `daemon off; master_process off; error_log ${folder}/nginx.log; pid ${folder}/nginx.pid;
events { worker_connections 16384; }
http {
  access_log off; keepalive_requests 100000000; keepalive_timeout 300; http2_max_requests 100000000;
  client_body_temp_path ${folder}; proxy_temp_path ${folder}; fastcgi_temp_path ${folder}; uwsgi_temp_path ${folder}; scgi_temp_path ${folder};
  server {
    ${listens.join(' ')}
    ssl_certificate ${cert}; ssl_certificate_key ${key}; ssl_session_cache shared:s:4m;
    location / { return 200 "${BODY}"; }
    location /large { alias ${folder}/large; }
  }
}`,
  );
  const nginx = topology.server.start('taskset', ['-c', LOAD_CPU, 'nginx', '-c', conf]);
  nginx.stdout?.resume();
  nginx.stderr?.resume();
  await untilItAnswers(site, PORTS.direct);
  return site;
}

const MAX_WAIT_MS = 20_000;

/**
 * Waits until `curl` on the client receives the body of the server from `port`, directly or through a proxy.
 * Throws after 20 s.
 */
export async function untilItAnswers(site: Site, port: number): Promise<void> {
  const deadline = performance.now() + MAX_WAIT_MS;
  const words = ['-sk', '--max-time', '3', '--resolve', `${SERVER_NAME}:${port}:${ADDRESSES.server}`];
  for (;;) {
    const { stdout } = await site.topology.client.run('curl', ...words, `https://${SERVER_NAME}:${port}/`);
    if (stdout === BODY) return;
    if (performance.now() > deadline)
      throw new Error(`the HTTPS server on port ${port} did not answer as expected: ${stdout}`);
  }
}
