import { createInterface } from 'node:readline';
import WebSocket from 'ws';

/**
 * `readers-process URL TOKEN READERS STALLED` opens READERS wiretap connections. The last STALLED connections
 * never read. The process prints `open` when all connections are open. For each line on standard input the
 * process prints the messages and the reported losses of each connection that reads.
 */
const [url = '', token = '', readers = '1', stalled = '0'] = process.argv.slice(2);
const MESSAGE = Buffer.from('"time":"');
const LOST = /"type":"lost","count":(\d+),"where":"(\w+)"/g;

type Reader = { messages: number; readonly lost: Record<string, number>; closed: boolean };

function open(isStalled: boolean): Promise<Reader> {
  const reader: Reader = { messages: 0, lost: {}, closed: false };
  const socket = new WebSocket(url, 'weir.wiretap.v1', { headers: { authorization: `Bearer ${token}` } });
  socket.on('message', (data: Buffer) => {
    let at = -1;
    for (;;) {
      at = data.indexOf(MESSAGE, at + 1);
      if (at < 0) break;
      reader.messages++;
    }
    if (!data.includes('"type":"lost"')) return;
    for (const [, count, where = ''] of data.toString('utf8').matchAll(LOST))
      reader.lost[where] = (reader.lost[where] ?? 0) + Number(count);
  });
  socket.on('close', () => {
    reader.closed = true;
  });
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('open', () => {
      if (isStalled) socket.pause();
      resolve(reader);
    });
  });
}

const all: Reader[] = [];
const reading = Number(readers) - Number(stalled);
for (let number = 0; number < Number(readers); number++) all.push(await open(number >= reading));
console.log('open');
for await (const _ of createInterface(process.stdin)) console.log(JSON.stringify(all.slice(0, reading)));
process.exit(0);
