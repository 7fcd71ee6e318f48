import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { serverHello } from '#test/service-plane/tls/hello-bytes.js';

const SERVER_HELLO = serverHello().toString('hex');

/**
 * A python3 program for one end of a connection. It executes one command per input line, and prints the
 * result of each command as a line of JSON.
 */
const TALKER = `
import hashlib, json, socket, struct, sys
listener = s = None
SERVER_HELLO = bytes.fromhex('${SERVER_HELLO}')
def stream(count, seed):
    at = 0
    while at < count:
        part = (struct.pack('>QQ', seed, at) * 4096)[:min(1 << 16, count - at)]
        at += len(part)
        yield part
def do(what, *words):
    global listener, s
    if what == 'listen':
        listener = socket.create_server(('0.0.0.0', int(words[0])))
    elif what == 'accept':
        s, _ = listener.accept(); s.setsockopt(6, 1, 1); listener.close()
    elif what == 'greet': s.sendall(SERVER_HELLO)
    elif what == 'greeted': s.recv(len(SERVER_HELLO), socket.MSG_WAITALL)
    elif what == 'dial':
        address, port, own, hello = words
        s = socket.socket(); s.setsockopt(1, 2, 1); s.setsockopt(6, 1, 1); s.bind(('', int(own)))
        s.connect((address, int(port))); s.sendall(open(hello, 'rb').read())
    elif what == 'timeout': s.settimeout(float(words[0]))
    elif what == 'send':
        for part in stream(int(words[0]), int(words[1])): s.sendall(part)
    elif what == 'urgent': s.send(b'!', socket.MSG_OOB)
    elif what == 'take':
        left, h, end = int(words[0]), hashlib.sha256(), 'open'
        while left:
            part = s.recv(min(1 << 18, left))
            if not part:
                end = 'end'; break
            left -= len(part); h.update(part)
        return dict(took=int(words[0]) - left, digest=h.hexdigest(), end=end)
    elif what == 'end': s.shutdown(socket.SHUT_WR)
    elif what == 'reset': s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()
    elif what == 'close': s.close()
    return {}
for line in sys.stdin:
    try: answer = do(*line.split())
    except Exception as failure: answer = dict(failed=type(failure).__name__)
    print(json.dumps(answer), flush=True)
`;

export type Answer = Readonly<Record<string, unknown>>;

export class TcpPeer {
  readonly #waiting: ((answer: Answer) => void)[] = [];

  constructor(private readonly child: ChildProcess) {
    if (child.stdout === null) throw new Error('it has no output');
    createInterface(child.stdout).on('line', (line) => this.#waiting.shift()?.(JSON.parse(line) as Answer));
  }

  static readonly words = ['-c', TALKER] as const;

  /** Sends a command and returns its result. `failed` is the name of the exception if the command failed. */
  ask(...words: readonly (string | number)[]): Promise<Answer> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.child.stdin?.write(`${words.join(' ')}\n`);
    });
  }

  async must(...words: readonly (string | number)[]): Promise<Answer> {
    const answer = await this.ask(...words);
    if ('failed' in answer) throw new Error(`${words.join(' ')}: ${String(answer.failed)}`);
    return answer;
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill('SIGKILL');
    await once(this.child, 'exit');
  }
}

/** Returns the digest of the bytes that the command `send` with the same `count` and `seed` sends. */
export function digestOf(count: number, seed: number): string {
  const hash = createHash('sha256');
  for (let at = 0; at < count; at += 1 << 16) {
    const head = Buffer.alloc(16);
    head.writeBigUInt64BE(BigInt(seed));
    head.writeBigUInt64BE(BigInt(at), 8);
    hash.update(Buffer.alloc(1 << 16, head).subarray(0, Math.min(1 << 16, count - at)));
  }
  return hash.digest('hex');
}
