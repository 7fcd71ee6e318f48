import { readFile } from 'node:fs/promises';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { LOAD_CPU, type Site } from './site.js';

export type Load = { readonly perSecond: number; readonly requests: number; readonly failed: number };

/**
 * Runs `wrk`, which sends the next request as soon as a reply arrives. With `isNew`, each request uses a new
 * connection.
 */
export async function wrk(
  site: Site,
  port: number,
  { seconds, connections, isNew }: { readonly seconds: number; readonly connections: number; readonly isNew: boolean },
): Promise<Load> {
  const header = isNew ? `-H 'Connection: close'` : '';
  const command = `exec taskset -c ${LOAD_CPU} wrk -t1 -c${connections} -d${seconds}s ${header} https://${SERVER_NAME}:${port}/`;
  const output = await named(site, command);
  const figure = (pattern: RegExp): number => Number(pattern.exec(output)?.[1] ?? 0);
  const failed =
    figure(/connect (\d+)/) +
    figure(/read (\d+)/) +
    figure(/timeout (\d+)/) +
    figure(/Non-2xx or 3xx responses: (\d+)/);
  const perSecond = figure(/Requests\/sec:\s+([\d.]+)/);
  return {
    perSecond,
    requests: figure(/(\d+) requests in/),
    failed: isNew ? figure(/Non-2xx or 3xx responses: (\d+)/) : failed,
  };
}

/**
 * Runs `h2load` over HTTP/2 with `streams` parallel streams on each connection. `h2load` sends the next
 * request as soon as a reply arrives.
 */
export async function multiplexed(
  site: Site,
  port: number,
  {
    seconds,
    connections,
    streams,
  }: { readonly seconds: number; readonly connections: number; readonly streams: number },
): Promise<Load> {
  const words = `-c ${connections} -m ${streams} -D ${seconds} https://${SERVER_NAME}:${port}/`;
  const output = await named(site, `exec taskset -c ${LOAD_CPU} h2load ${words}`);
  const figure = (pattern: RegExp): number => Number(pattern.exec(output)?.[1] ?? 0);
  return {
    perSecond: figure(/([\d.]+) req\/s/),
    requests: figure(/(\d+) succeeded/),
    failed: figure(/(\d+) failed/),
  };
}

/**
 * Runs `h2load` at a constant rate of `perSecond` requests per second, over HTTP/1.1 or HTTP/2. Returns the
 * latency of each request in milliseconds.
 */
export async function paced(
  site: Site,
  port: number,
  load: {
    readonly seconds: number;
    readonly connections: number;
    readonly perSecond: number;
    readonly isHttp2?: boolean;
  },
): Promise<readonly number[]> {
  const log = `${site.folder}/h2load-${port}.log`;
  const rate = Math.max(1, Math.round(load.perSecond / load.connections));
  const words = [
    load.isHttp2 === true ? '' : '--h1',
    `-c ${load.connections} -D ${load.seconds} --rps=${rate} --log-file=${log}`,
    `https://${SERVER_NAME}:${port}/`,
  ];
  await named(site, `rm -f ${log}; exec taskset -c ${LOAD_CPU} h2load ${words.join(' ')}`);
  // The columns of the log are: start time in µs, HTTP status, latency in µs.
  const lines = (await readFile(log, 'utf8')).trim().split('\n');
  return lines.map((line) => Number(line.split('\t')[2]) / 1_000).filter((ms) => ms > 0);
}

/**
 * Runs a shell command on the client in a new mount namespace. In this namespace, `/etc/hosts` is replaced by
 * a file that maps the server name to the address of the server.
 */
export async function named({ topology, hostsFile }: Site, command: string): Promise<string> {
  const { stdout } = await topology.client.run(
    'unshare',
    '-m',
    'sh',
    '-c',
    `mount --bind ${hostsFile} /etc/hosts; ${command}`,
  );
  return stdout;
}
