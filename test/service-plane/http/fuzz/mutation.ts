import type { Random } from '#test/seed.js';
import { MESSAGES } from '../messages.js';
import { SMUGGLING } from '../smuggling.js';

const bytesOf = (text: string): Buffer => Buffer.from(text, 'latin1');
const GOOD = MESSAGES.map(bytesOf);
const BAD = SMUGGLING.map(([text]) => bytesOf(text)).filter(({ length }) => length < 1000);

/** Byte sequences that `changed` inserts into messages. Such sequences are typical of request smuggling. */
const PIECES: readonly Buffer[] = [
  ...[
    '\r\n',
    '\n',
    '\r',
    '\r\n\r\n',
    '\r\n ',
    ' ',
    '\t',
    ':',
    ' :',
    ',',
    ';',
    '\0',
    '\x0b',
    '\x7f',
    '\x80',
    '\xff',
    '"',
    '#',
    '\\',
    '%',
    '@',
    '*',
  ],
  ...[
    '0',
    '00',
    '1',
    '5',
    'a',
    'ffffffff',
    '0x5',
    '+5',
    '-1',
    '9007199254740992',
    '0\r\n\r\n',
    '5\r\nhello\r\n',
    ';x=y',
  ],
  ...[
    'Content-Length: 5\r\n',
    'Content-Length: 0\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Transfer-Encoding: x\r\n',
    'chunked',
    ', chunked',
  ],
  ...[
    'Host: a.test\r\n',
    'Host: b.test\r\n',
    'Connection: close\r\n',
    'Connection: Upgrade\r\n',
    'Upgrade: websocket\r\n',
    'Expect: 100-continue\r\n',
  ],
  ...[
    'GET / HTTP/1.1\r\n',
    'GET ',
    ' HTTP/1.1',
    ' HTTP/1.0',
    'HTTP/1.1 200 OK\r\n',
    'https://a.test',
    '/..;/',
    '?',
    'X-A: b\r\n',
    'TE: trailers\r\n',
  ],
].map(bytesOf);

/** Returns a message from `MESSAGES` or `SMUGGLING` with one to six random changes. */
export function mutant(random: Random): Buffer {
  let bytes = random.pick(random.chance(0.8) ? GOOD : BAD);
  for (let left = random.chance(0.7) ? 1 : random.between(2, 6); left > 0; left--) bytes = changed(bytes, random);
  return bytes.subarray(0, 8192);
}

/** Splits the bytes into pieces of random length. */
export function cut(bytes: Buffer, random: Random): Buffer[] {
  const places = random.some(1, 5, () => random.below(bytes.length + 1)).sort((x, y) => x - y);
  return [0, ...places].map((from, index) => bytes.subarray(from, places[index] ?? bytes.length));
}

function changed(bytes: Buffer, random: Random): Buffer {
  const from = random.below(bytes.length + 1);
  const to = Math.min(bytes.length, from + random.below(16));
  const start = bytes.subarray(0, from);
  switch (random.below(6)) {
    case 0: {
      const copy = Buffer.from(bytes);
      if (from < copy.length) copy[from] = random.below(256);
      return copy;
    }
    case 1:
      return Buffer.concat([start, bytes.subarray(to)]);
    case 2:
      return Buffer.concat([start, bytes.subarray(from, to), bytes.subarray(from)]);
    case 3: {
      const other = random.pick(random.chance(0.5) ? GOOD : BAD);
      return Buffer.concat([start, other.subarray(random.below(other.length))]);
    }
    default:
      return Buffer.concat([start, random.pick(PIECES), bytes.subarray(random.chance(0.5) ? from : to)]);
  }
}
