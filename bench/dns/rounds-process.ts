import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';
import { formatAddress } from '#addresses/ip-address.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { readMessage } from '#dns/wire/message/dns-message.js';
import { writeQuery } from '#dns/wire/message/dns-query.js';
import { nameOf } from '#dns/wire/name.js';
import { addressesOf } from '#dns/wire/records/address-chain.js';

async function ask(resolver: string, port: number, rounds: number, atOnce: number) {
  const failures: Record<string, number> = {};
  let next = 0;
  const started = performance.now();
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      const asker = new Asker(resolver);
      while (next < rounds) {
        const round = next++;
        const address = await asker.lookUp(`n${round}`);
        const result = address === null ? 'no answer' : await reach(address, port);
        if (result !== 'open') failures[result] = (failures[result] ?? 0) + 1;
      }
      asker.close();
    }),
  );
  return { rounds, failures, seconds: (performance.now() - started) / 1_000 };
}

class Asker {
  readonly #socket = createSocket('udp4');
  #id = 0;

  constructor(private readonly resolver: string) {}

  lookUp(label: string): Promise<Address | null> {
    this.#id = (this.#id + 1) & 0xffff;
    const id = this.#id;
    const name = nameOf([label, 'example', 'com']);
    const query = writeQuery({
      id,
      name,
      type: 1,
      class: 1,
      recursionDesired: true,
      checkingDisabled: false,
      edns: null,
    });
    return new Promise((resolve) => {
      const timer = setTimeout(() => finish(null), 3_000);
      const finish = (address: Address | null): void => {
        clearTimeout(timer);
        this.#socket.removeAllListeners('message');
        resolve(address);
      };
      this.#socket.on('message', (datagram) => {
        const message = readMessage(datagram);
        if ('fault' in message || message.id !== id) return;
        finish(addressesOf(message).addresses[0]?.address ?? null);
      });
      this.#socket.send(query, 53, this.resolver);
    });
  }

  close(): void {
    this.#socket.close();
  }
}

/**
 * Connects to `address` and resolves with `open` or the reason of the failure. The time limit is shorter than
 * the first TCP retransmission, so that a dropped SYN counts as a failure.
 */
function reach(address: Address, port: number): Promise<string> {
  const host = formatAddress(address);
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    // TCP retransmits a SYN after 1 s, so the time limit is 0.9 s. If this process was delayed, a connection
    // may be open already: `setImmediate` lets pending socket events run first.
    const timer = setTimeout(() => setImmediate(() => finish('first packet lost')), 900);
    const finish = (result: string): void => {
      clearTimeout(timer);
      socket.resetAndDestroy();
      resolve(result);
    };
    socket.once('connect', () => finish('open'));
    socket.once('error', (failure: NodeJS.ErrnoException) => finish(failure.code ?? failure.message));
  });
}

/**
 * A process with two modes. `serve PORT` accepts connections. `ask RESOLVER PORT ROUNDS AT_ONCE` runs AT_ONCE
 * loops, which look up a new name in each round and connect to the returned address immediately. At the end
 * `ask` prints one line of JSON: the rounds, the failures by reason, and the seconds.
 */
const [mode = '', ...words] = process.argv.slice(2);
if (mode === 'serve') {
  // The backlog is long. If the accept queue overflowed, the benchmark would count the lost connection as a
  // failure of the DNS proxy.
  const at = { port: Number(words[0]), host: '0.0.0.0', backlog: 4_096 };
  createServer((socket) => socket.on('error', () => {})).listen(at, () => console.log('serving'));
} else {
  const [resolver = '', port = '', rounds = '', atOnce = ''] = words;
  const outcome = await ask(resolver, Number(port), Number(rounds), Number(atOnce));
  console.log(JSON.stringify(outcome));
  process.exit(0);
}
