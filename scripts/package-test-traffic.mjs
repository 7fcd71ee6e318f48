// Traffic of package-test.sh. `server` echoes datagrams and lines, and is the resolver of the DNS proxy.
// `client FILE` sends numbered datagrams, lines and lookups until the file exists, and then prints the
// counts as JSON. Each is sent once: a lost packet, or a lookup without an answer, stays in the counts.
// The names are few, and each was answered once before the counts begin.
import { createSocket } from 'node:dgram';
import { existsSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

const [SERVER, PROXY, UDP_PORT, TCP_PORT, DNS_PORT] = ['10.77.2.2', '10.77.1.1', 9000, 9001, 53];
const BUFFER = 4 << 20;
const PACKET_MS = 20;
const LOOKUP_MS = 200;
const NAMES = 10;
const LAST_ANSWER_MS = 20_000;

function serve() {
  const echo = createSocket({ type: 'udp4', recvBufferSize: BUFFER });
  echo.on('message', (text, { address, port }) => echo.send(text, port, address));
  echo.bind(UDP_PORT, SERVER);
  createServer((socket) => socket.pipe(socket)).listen(TCP_PORT, SERVER);
  const resolver = createSocket({ type: 'udp4', recvBufferSize: BUFFER });
  resolver.on('message', (query, { address, port }) => resolver.send(answerTo(query), port, address));
  resolver.bind(DNS_PORT, SERVER);
}

/** Returns an answer with a public address: the proxy removes private ones (rebind protection). */
function answerTo(query) {
  const end = query.indexOf(0, 12) + 5;
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(0x8180, 2);
  header.set([0, 1, 0, 1, 0, 0, 0, 0], 4);
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4, 93, 184, 216, 34]);
  return Buffer.concat([header, query.subarray(12, end), record]);
}

function queryFor(id, name) {
  const labels = name.split('.').flatMap((label) => [label.length, ...Buffer.from(label)]);
  return Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, ...labels, 0, 0, 1, 0, 1]);
}

/** Returns a function that sends one lookup, and calls `done` with its RCODE, or 'empty' for an empty answer. */
function resolverClient() {
  const waiting = new Map();
  const socket = createSocket({ type: 'udp4', recvBufferSize: BUFFER });
  let last = 0;
  socket.on('message', (answer) => {
    const id = answer.readUInt16BE(0);
    const rcode = answer[3] & 15;
    waiting.get(id)?.(rcode === 0 && answer.readUInt16BE(6) === 0 ? 'empty' : rcode);
    waiting.delete(id);
  });
  return (done) => {
    const id = last++ & 0xffff;
    waiting.set(id, done);
    socket.send(queryFor(id, `host-${id % NAMES}.example.com`), DNS_PORT, PROXY);
  };
}

async function send(until) {
  const seen = {
    udp: { sent: 0, lost: 0 },
    tcp: { sent: 0, lost: 0 },
    lookups: { sent: 0, unanswered: 0, failed: 0, slowest_ms: 0, rcodes: {} },
  };
  const lookUp = resolverClient();
  for (let answered = 0; answered < 2 * NAMES; ) {
    lookUp((rcode) => {
      answered = rcode === 0 ? answered + 1 : 0;
    });
    await pause(LOOKUP_MS);
  }
  console.error('ready');

  const returned = new Set();
  const udp = createSocket({ type: 'udp4', recvBufferSize: BUFFER });
  udp.on('message', (text) => returned.add(String(text)));
  const tcp = connect(TCP_PORT, SERVER);
  let echoed = '';
  tcp.setEncoding('utf8').on('data', (text) => {
    echoed += text;
  });
  tcp.on('error', ({ message }) => console.error(`TCP: ${message}`));
  const { lookups } = seen;
  let lastLookup = 0;
  while (!existsSync(until)) {
    udp.send(String(seen.udp.sent++), UDP_PORT, SERVER);
    tcp.write(`${seen.tcp.sent++}\n`);
    const now = performance.now();
    if (now - lastLookup >= LOOKUP_MS) {
      lastLookup = now;
      lookups.sent++;
      lookups.unanswered++;
      lookUp((rcode) => {
        lookups.unanswered--;
        lookups.rcodes[rcode] = (lookups.rcodes[rcode] ?? 0) + 1;
        if (rcode !== 0) lookups.failed++;
        lookups.slowest_ms = Math.max(lookups.slowest_ms, Math.round(performance.now() - now));
      });
    }
    await pause(PACKET_MS);
  }
  const deadline = performance.now() + LAST_ANSWER_MS;
  const lines = () => echoed.split('\n').length - 1;
  const isWhole = () => returned.size === seen.udp.sent && lines() === seen.tcp.sent && lookups.unanswered === 0;
  while (!isWhole() && performance.now() < deadline) await pause(50);
  seen.udp.lost = seen.udp.sent - returned.size;
  seen.tcp.lost = seen.tcp.sent - lines();
  console.log(JSON.stringify(seen));
  process.exit(0);
}

const [role, until] = process.argv.slice(2);
if (role === 'server') serve();
else await send(until);
