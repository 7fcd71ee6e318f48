import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:https';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * The web server and the clients of the second part of the quick start. Run inside a network namespace as
 * `node tour-web.js MODE …`. The program prints one line of text on standard output, and ends when standard
 * input closes.
 *
 *     serve NAME ADDRESS CERT KEY           a resolver that knows the address of NAME only, and an HTTPS
 *                                           server that sends the address of its client; prints `ready`
 *     lookup NAME RESOLVER SOURCE           prints `address A`, or `refused CODE`
 *     get NAME PATH ADDRESS CA-FILE SOURCE  an HTTPS request; prints `STATUS BODY`, or `refused CODE`
 *     connect ADDRESS PORT SOURCE           a TCP connection and its echo; prints `pong`, or `refused CODE`
 *     datagram ADDRESS PORT SOURCE          a UDP datagram to which nothing answers; prints `sent`
 *     repeat MS MODE … [-- MS MODE …]…      repeats each client, with a pause of MS; prints `ready` only
 */
const say = (line: string): void => void process.stdout.write(`${line}\n`);

const TIMEOUT_MS = 5_000;
// Lengths in bytes of the header of a DNS message, and of the type and class behind the name of a question.
const DNS = { header: 12, typeAndClass: 4, typeA: 1 } as const;

async function serve(name: string, address: string, certFile: string, keyFile: string): Promise<void> {
  const resolver = createSocket('udp4');
  resolver.on('message', (query, from) => resolver.send(answerTo(query, name, address), from.port, from.address));
  await new Promise<void>((resolve) => resolver.bind(53, address, resolve));
  const web = createServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, ({ socket }, response) => {
    response.end(socket.remoteAddress);
  });
  await new Promise<void>((resolve) => web.listen(443, address, resolve));
  say('ready');
}

/** Answers a query for the address of `name`; NXDOMAIN for any other name. */
function answerTo(query: Buffer, name: string, address: string): Buffer {
  const labels: string[] = [];
  let at: number = DNS.header;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  const isKnown = labels.join('.').toLowerCase() === name;
  const question = query.subarray(DNS.header, at + 1 + DNS.typeAndClass);
  const hasAddress = isKnown && query.readUInt16BE(at + 1) === DNS.typeA;
  const header = Buffer.alloc(DNS.header);
  query.copy(header, 0, 0, 2);
  header.writeUInt16BE(isKnown ? 0x8580 : 0x8583, 2); // an authoritative answer: no error, or NXDOMAIN
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(hasAddress ? 1 : 0, 6);
  // The answer record: the name as a pointer to the question, type A, class IN, TTL 60 s, and 4 bytes of
  // data.
  const record = Buffer.from([0xc0, DNS.header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address.split('.').map(Number)]);
  return Buffer.concat([header, question, ...(hasAddress ? [record] : [])]);
}

async function lookup(name: string, server: string, source: string): Promise<string> {
  const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: 1 });
  resolver.setServers([server]);
  resolver.setLocalAddress(source);
  try {
    return `address ${(await resolver.resolve4(name)).join(' ')}`;
  } catch (failure) {
    return `refused ${codeOf(failure)}`;
  }
}

function get(name: string, path: string, address: string, caFile: string, source: string): Promise<string> {
  const options = { host: address, servername: name, path, ca: readFileSync(caFile), localAddress: source };
  return new Promise((resolve) => {
    const asked = request({ ...options, headers: { host: name }, agent: false, timeout: TIMEOUT_MS }, (response) => {
      let body = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        body += chunk;
      });
      response.on('end', () => resolve(`${response.statusCode} ${response.statusCode === 200 ? body : ''}`.trim()));
    });
    asked.on('timeout', () => asked.destroy(noAnswer()));
    asked.on('error', (failure) => resolve(`refused ${codeOf(failure)}`));
    asked.end();
  });
}

function echo(host: string, port: number, localAddress: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, localAddress, timeout: TIMEOUT_MS }, () => socket.write('ping'));
    socket.once('data', () => {
      socket.end();
      resolve('pong');
    });
    socket.on('timeout', () => socket.destroy(noAnswer()));
    socket.on('error', (failure) => resolve(`refused ${codeOf(failure)}`));
    socket.on('close', () => resolve('refused closed'));
  });
}

function datagram(address: string, port: number, source: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    socket.on('error', (failure) => resolve(`refused ${codeOf(failure)}`));
    socket.bind(0, source, () =>
      socket.send('ping', port, address, () => {
        socket.close();
        resolve('sent');
      }),
    );
  });
}

async function repeat(everyMs: number, words: readonly string[]): Promise<never> {
  for (;;) {
    await run(words);
    await pause(everyMs);
  }
}

/** Splits a list of words at each word `--`. */
function split(words: readonly string[]): readonly (readonly string[])[] {
  const end = words.indexOf('--');
  return end < 0 ? [words] : [words.slice(0, end), ...split(words.slice(end + 1))];
}

const noAnswer = (): Error => Object.assign(new Error('no answer'), { code: 'ETIMEDOUT' });

function codeOf(failure: unknown): string {
  return (failure as NodeJS.ErrnoException).code ?? String(failure);
}

/** Runs one command of a client. Resolves with its line; null if there is no such command. */
async function run([mode, first = '', second = '', third = '', fourth = '', fifth = '']: readonly string[]) {
  switch (mode) {
    case 'lookup':
      return lookup(first, second, third);
    case 'get':
      return get(first, second, third, fourth, fifth);
    case 'connect':
      return echo(first, Number(second), third);
    case 'datagram':
      return datagram(first, Number(second), third);
    default:
      return null;
  }
}

const [mode = '', first = '', second = '', third = '', fourth = ''] = process.argv.slice(2);
process.stdin.on('end', () => process.exit(0)).resume();
if (mode === 'serve') await serve(first, second, third, fourth);
else if (mode === 'repeat') {
  say('ready');
  await Promise.all(split(process.argv.slice(3)).map(([ms, ...words]) => repeat(Number(ms), words)));
} else {
  const line = await run(process.argv.slice(2));
  if (line !== null) say(line);
  else {
    process.stderr.write(`tour-web: unknown mode ${mode}\n`);
    process.exit(2);
  }
}
