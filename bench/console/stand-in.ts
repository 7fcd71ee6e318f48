import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WebSocketServer } from 'ws';

const CONSOLE = fileURLToPath(new URL('../../console', import.meta.url));
const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.html': 'text/html; charset=utf-8',
};
const FRAME_MS = 20;
/** Different rows of the usual traffic, and the part of the messages that belongs to none of them. */
const ROWS = 1_500;
const RARE = 0.02;
const PREPARED = 20_000;

/**
 * A server with the console and the API that its page Traffic needs, which sends messages in the node's
 * form.
 */
export type StandIn = {
  readonly url: string;
  /** The messages a second from now on. */
  rate: number;
  /** The messages sent so far, to all readers. */
  readonly sent: number;
  close(): Promise<void>;
};

export async function startStandIn(rate: number, port = 0): Promise<StandIn> {
  const began = new Date().toISOString();
  const answers: Readonly<Record<string, unknown>> = {
    '/api/v1/session': { subject: 'bench', role: 'admin', expires_at: new Date(Date.now() + 864e5).toISOString() },
    '/ready': { ready: true, in_force_since: began, checks: [] },
    '/api/v1/stats': { generation: 1, dataplane: { active_flows: 0, packets: {}, drops: {}, maps: {} } },
    '/api/v1/policy/pending': { pending: null },
    '/api/v1/settings/performance-mode': { enabled: true, source: null },
    '/api/v1/flows': {
      ...{ matched: 0, items: [], next_cursor: null },
      ...{ partial: false, node_errors: [], nodes_queried: 1, nodes_responded: 1 },
    },
  };
  const http = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://stand-in');
    const answer = answers[pathname];
    if (answer !== undefined) response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    else if (pathname.startsWith('/console/')) {
      const name = extname(pathname) === '' ? 'index.html' : pathname.slice('/console/'.length);
      response.setHeader('content-type', TYPES[extname(name)] ?? 'text/plain').end(readFileSync(join(CONSOLE, name)));
    } else response.writeHead(404).end();
  });
  const sockets = new WebSocketServer({ server: http, handleProtocols: () => 'weir.wiretap.v1' });
  const messages = Array.from({ length: PREPARED }, (_, at) => messageOf(at));
  const running = { rate, sent: 0 };
  let next = 0;
  let due = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    due += ((now - last) / 1_000) * running.rate;
    last = now;
    const count = Math.floor(due);
    due -= count;
    if (count === 0) return;
    const frame: string[] = [];
    for (let each = 0; each < count; each++) {
      frame.push(messages[next] ?? '');
      next = (next + 1) % messages.length;
    }
    const text = `[${frame.join(',')}]`;
    for (const socket of sockets.clients) {
      socket.send(text);
      running.sent += count;
    }
  }, FRAME_MS);
  await new Promise<void>((resolve) => http.listen(port, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    get rate() {
      return running.rate;
    },
    set rate(value) {
      running.rate = value;
    },
    get sent() {
      return running.sent;
    },
    close: async () => {
      clearInterval(timer);
      for (const socket of sockets.clients) socket.terminate();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

const GROUPS = ['office', 'cameras', 'build', 'guests', 'printers', 'servers'];
const PORTS = [443, 443, 443, 80, 53, 22, 23, 554, 123, 8443, 5432, 8883];
const NAMES = ['shop.example.com', 'api.example.com', 'cdn.example.net', 'mail.example.org', 'time.example.org'];

/** A message of `docs/wiretap.md`. Few of the rows have most of the messages, as in a real network. */
function messageOf(at: number): string {
  const row = at % Math.round(1 / RARE) === 0 ? ROWS + at : Math.floor(ROWS * ((at * 0.618) % 1) ** 3);
  const group = row % GROUPS.length;
  const port = PORTS[row % PORTS.length] ?? 443;
  const isDenied = port === 23 || port === 5432;
  const verdict = isDenied ? 'deny' : port === 554 ? 'audit' : 'allow';
  const decided = row % 17 === 0 && isDenied ? null : GROUPS[group];
  const common = {
    time: new Date().toISOString(),
    ...{ src: `10.1.${group}.${row % 250}`, src_port: 32_768 + (at % 28_000) },
    ...{
      dst: `10.${2 + (row % 3)}.${row % 9}.${(row >> 3) % 250}`,
      dst_port: port,
      proto: port === 53 || port === 123 ? 17 : 6,
    },
    ...{ icmp_id: null, src_names: [], dst_names: row % 4 === 0 ? [NAMES[row % NAMES.length]] : [] },
    ...{ interface: 'eth1', verdict, effective_action: isDenied ? 'deny' : 'allow' },
    ...{ source_group: decided, rule: decided === null ? null : `rule-${port}` },
    ...{ decided_by: decided === null ? 'policy_default' : 'rule' },
    ...{ policy_id: '6ee2a245-c417-40b1-97eb-1538b6b8bcfc', generation: 7 },
  };
  const flow = { state: 'tcp_syn_sent', foreign: false, translation: null };
  const packet = { drop_reason: 'policy_deny', icmp_type: null, icmp_code: null, tcp_flags: 2, length: 60, packets: 1 };
  return JSON.stringify(
    isDenied
      ? { type: 'verdict', ...common, ...packet, outgoing: false, translation: null }
      : { type: 'flow', ...common, ...flow },
  );
}
