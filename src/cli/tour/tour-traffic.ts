import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';

/**
 * Generates test traffic for the quick start and the tests. Run inside a network namespace as
 * `node tour-traffic.js MODE …`. The program prints one line of text per event on standard output, and ends
 * when standard input closes. N is the number of the echo or datagram, from 1.
 *
 *     serve PORT…                      a TCP and UDP echo server on each port; prints `ready`
 *     connect ADDRESS PORT [options]   one TCP connection; prints `open` or `refused CODE`, then `pong N` for
 *                                      each echo, `silent N` if an echo takes longer than --timeout, `closed`
 *     datagram ADDRESS PORT [options]  one UDP datagram and its echo; prints `pong 1` or `silent 1`
 *     connect-udp ADDRESS PORT [options]  a UDP flow with one datagram every --every ms; prints `pong N` for
 *                                      each echo, and `silent N` for each echo later than --timeout
 *
 * Options: --source ADDRESS, --source-port PORT, --timeout MS, --every MS. Without --every, `connect` ends
 * after one echo. With --every, `connect` requests the next echo --every ms after each echo.
 */
const say = (line: string): void => void process.stdout.write(`${line}\n`);

type Options = { source?: string; sourcePort?: number; everyMs?: number; timeoutMs: number };

function readOptions(args: readonly string[]): { words: string[]; options: Options } {
  const words: string[] = [];
  const options: Options = { timeoutMs: 1_000 };
  for (let index = 0; index < args.length; index++) {
    const word = args[index] ?? '';
    const value = args[index + 1] ?? '';
    if (word === '--source') options.source = value;
    else if (word === '--source-port') options.sourcePort = Number(value);
    else if (word === '--every') options.everyMs = Number(value);
    else if (word === '--timeout') options.timeoutMs = Number(value);
    else {
      words.push(word);
      continue;
    }
    index++;
  }
  return { words, options };
}

async function serve(ports: readonly number[]): Promise<void> {
  await Promise.all(
    ports.flatMap((port) => [
      new Promise<void>((resolve, reject) => {
        const server = createServer((socket) => {
          socket.on('error', () => socket.destroy());
          socket.pipe(socket);
        });
        server.once('error', reject);
        server.listen(port, '0.0.0.0', resolve);
      }),
      new Promise<void>((resolve, reject) => {
        const socket = createSocket('udp4');
        socket.on('message', (message, from) => socket.send(message, from.port, from.address));
        socket.once('error', reject);
        socket.bind(port, '0.0.0.0', resolve);
      }),
    ]),
  );
  say('ready');
}

function connectTo(address: string, port: number, options: Options): void {
  const socket = connect({
    host: address,
    port,
    ...(options.source === undefined ? {} : { localAddress: options.source }),
    ...(options.sourcePort === undefined ? {} : { localPort: options.sourcePort }),
  });
  const giveUp = setTimeout(() => {
    say('refused ETIMEDOUT');
    process.exit(0);
  }, options.timeoutMs);
  let opened = false;
  socket.once('error', (error: NodeJS.ErrnoException) => {
    say(opened ? 'closed' : `refused ${error.code ?? 'error'}`);
    process.exit(0);
  });
  socket.once('close', () => {
    say('closed');
    process.exit(0);
  });
  socket.once('connect', () => {
    opened = true;
    clearTimeout(giveUp);
    socket.setNoDelay(true);
    say('open');
    let count = 0;
    let pending = '';
    let silence: NodeJS.Timeout | undefined;
    const ping = (): void => {
      count++;
      socket.write(`${count}\n`);
      silence = setTimeout(() => {
        say(`silent ${count}`);
        if (options.everyMs === undefined) process.exit(0);
        else silence?.refresh();
      }, options.timeoutMs);
    };
    socket.setEncoding('utf8');
    socket.on('data', (text: string) => {
      pending += text;
      const lines = pending.split('\n');
      pending = lines.pop() ?? '';
      for (const line of lines) {
        clearTimeout(silence);
        say(`pong ${line}`);
        if (options.everyMs === undefined) socket.end();
        else setTimeout(ping, options.everyMs);
      }
    });
    ping();
  });
}

function datagramTo(address: string, port: number, options: Options): void {
  const socket = createSocket('udp4');
  socket.once('message', () => {
    say('pong 1');
    process.exit(0);
  });
  socket.once('error', (error: NodeJS.ErrnoException) => {
    say(`refused ${error.code ?? 'error'}`);
    process.exit(0);
  });
  setTimeout(() => {
    say('silent 1');
    process.exit(0);
  }, options.timeoutMs);
  socket.bind(options.sourcePort ?? 0, options.source, () => socket.send('1\n', port, address));
}

function stream(address: string, port: number, options: Options): void {
  const socket = createSocket('udp4');
  const waiting = new Map<number, NodeJS.Timeout>();
  let count = 0;
  socket.on('message', (message) => {
    const number = Number(message.toString());
    const timer = waiting.get(number);
    if (timer === undefined) return;
    clearTimeout(timer);
    waiting.delete(number);
    say(`pong ${number}`);
  });
  const next = (): void => {
    count++;
    const number = count;
    const lost = (): void => {
      waiting.delete(number);
      say(`silent ${number}`);
    };
    waiting.set(number, setTimeout(lost, options.timeoutMs));
    socket.send(String(number), port, address);
  };
  socket.bind(options.sourcePort ?? 0, options.source, () => setInterval(next, options.everyMs ?? 100));
}

const { words, options } = readOptions(process.argv.slice(2));
const [mode, ...rest] = words;
process.stdin.on('end', () => process.exit(0)).resume();
if (mode === 'serve') await serve(rest.map(Number));
else if (mode === 'connect') connectTo(rest[0] ?? '', Number(rest[1]), options);
else if (mode === 'datagram') datagramTo(rest[0] ?? '', Number(rest[1]), options);
else if (mode === 'connect-udp') stream(rest[0] ?? '', Number(rest[1]), options);
else {
  process.stderr.write(`traffic: unknown mode ${mode ?? ''}\n`);
  process.exit(2);
}
