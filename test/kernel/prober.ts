import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect } from 'node:net';

/**
 * A program that generates the traffic of a client: `node prober.js ADDRESS ALLOWED DENIED`. A test runs it
 * in the client's network namespace. It sends to the echo server at port ALLOWED, by one permanent UDP flow,
 * one permanent TCP flow, and new flows all the time. It also sends datagrams to port DENIED. It prints
 * `ready` when it has started. When its standard input closes, it waits for pending replies and prints a
 * `Summary` as JSON.
 */
export type Summary = {
  /** Datagrams of the permanent UDP flow: sent datagrams, and datagrams without a reply. */
  readonly udp: { sent: number; lost: number };
  /** New UDP flows of two datagrams each: opened flows, and datagrams without a reply. */
  readonly freshUdp: { opened: number; failed: number };
  readonly tcp: { echoes: number; slowestMs: number; closed: boolean };
  readonly freshTcp: { opened: number; failed: number };
  readonly denied: { sent: number; answered: number };
};

const TIMEOUT_MS = 1_000;
/** The permanent UDP flow sends more datagrams than this, however slow the machine is. */
const LEAST_SENT = 50;
/** Time to wait for a reply to the last datagram to the denied port. A reply would be an error. */
const LEAKED_MS = 300;
const summary: Summary = {
  udp: { sent: 0, lost: 0 },
  freshUdp: { opened: 0, failed: 0 },
  tcp: { echoes: 0, slowestMs: 0, closed: false },
  freshTcp: { opened: 0, failed: 0 },
  denied: { sent: 0, answered: 0 },
};
const [address = '', allowed = '', denied = ''] = process.argv.slice(2);
let ending = false;
const underWay = new Set<Promise<void>>();
function follow(work: Promise<void>): void {
  underWay.add(work);
  void work.finally(() => underWay.delete(work));
}
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function bound(): Promise<UdpSocket> {
  const socket = createSocket('udp4');
  return new Promise((resolve) => socket.bind(0, () => resolve(socket)));
}

async function steadyUdp(): Promise<void> {
  const socket = await bound();
  const waiting = new Set<string>();
  socket.on('message', (message) => waiting.delete(message.toString()));
  while (!ending || summary.udp.sent <= LEAST_SENT) {
    const text = String(++summary.udp.sent);
    waiting.add(text);
    socket.send(text, Number(allowed), address);
    await pause(2);
  }
  const until = performance.now() + TIMEOUT_MS;
  while (waiting.size > 0 && performance.now() < until) await pause(5);
  summary.udp.lost = waiting.size;
  socket.close();
}

async function freshUdp(): Promise<void> {
  const flow = async (): Promise<void> => {
    const socket = await bound();
    for (const text of ['1', '2']) {
      const echo = new Promise<boolean>((resolve) => {
        const timer = setTimeout(() => resolve(false), TIMEOUT_MS);
        socket.once('message', () => {
          clearTimeout(timer);
          resolve(true);
        });
      });
      socket.send(text, Number(allowed), address);
      if (!(await echo)) summary.freshUdp.failed++;
    }
    socket.close();
  };
  while (!ending) {
    summary.freshUdp.opened++;
    follow(flow());
    await pause(4);
  }
}

async function steadyTcp(): Promise<void> {
  const socket = connect(Number(allowed), address);
  socket.setNoDelay(true);
  socket.on('close', () => {
    summary.tcp.closed ||= !ending;
  });
  socket.on('error', () => {
    summary.tcp.closed = true;
  });
  while (!ending && !summary.tcp.closed) {
    const started = performance.now();
    const echo = new Promise((resolve) => socket.once('data', resolve));
    socket.write('x');
    await Promise.race([echo, pause(5 * TIMEOUT_MS)]);
    summary.tcp.echoes++;
    summary.tcp.slowestMs = Math.max(summary.tcp.slowestMs, Math.round(performance.now() - started));
    await pause(1);
  }
  socket.end();
}

async function freshTcp(): Promise<void> {
  const flow = (): Promise<void> =>
    new Promise((resolve) => {
      const socket = connect(Number(allowed), address, () => socket.write('x'));
      const end = (failed: boolean): void => {
        clearTimeout(timer);
        if (failed) summary.freshTcp.failed++;
        resolve();
      };
      const timer = setTimeout(() => end(true), 5 * TIMEOUT_MS);
      socket.once('data', () => {
        socket.end();
        end(false);
      });
      socket.once('error', () => end(true));
    });
  while (!ending) {
    summary.freshTcp.opened++;
    follow(flow());
    await pause(10);
  }
}

async function sendDenied(): Promise<void> {
  const socket = await bound();
  socket.on('message', () => {
    summary.denied.answered++;
  });
  while (!ending) {
    summary.denied.sent++;
    socket.send('x', Number(denied), address);
    await pause(1);
  }
  await pause(LEAKED_MS);
  socket.close();
}

process.stdin.on('end', () => {
  ending = true;
});
process.stdin.resume();
const all = Promise.all([steadyUdp(), freshUdp(), steadyTcp(), freshTcp(), sendDenied()]);
process.stdout.write('ready\n');
await all;
await Promise.all(underWay);
process.stdout.write(`${JSON.stringify(summary)}\n`, () => process.exit(0));
