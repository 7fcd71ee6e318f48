import type { SentPacket } from './nat-frames.js';
import { frameOf } from './nat-frames.js';
import { Wire } from './wire.js';

/**
 * A program that sends frames: `node nat-flood-process.js NAMESPACE IFINDEX COUNT PER_SECOND`. The first line
 * of its standard input is a JSON array of packets. It sends each of them from PORTS source ports (or with so
 * many ICMP identifiers) in turn. It prints the number of sent frames when it has sent COUNT frames, or when
 * its standard input closes.
 */
const PORTS = 64;
/** Frames between two looks at the clock and at the standard input. */
const BURST = 128;

const [namespace = '', ifindex, count, perSecond] = process.argv.slice(2);
let ended = false;
let text = '';
const packets = new Promise<readonly SentPacket[]>((resolve) => {
  process.stdin.setEncoding('utf8');
  process.stdin.on('data', (data: string) => {
    text += data;
    if (text.includes('\n')) resolve(JSON.parse(text.split('\n', 1)[0] ?? '') as SentPacket[]);
  });
});
process.stdin.on('end', () => {
  ended = true;
});

function* variants({ packet, options }: SentPacket): Generator<Uint8Array> {
  for (let more = 0; more < PORTS; more++) {
    yield frameOf({
      packet: { ...packet, sourcePort: packet.sourcePort + more },
      options: { ...options, icmpId: packet.sourcePort + more },
    });
  }
}

const all = (await packets).map((packet) => [...variants(packet)]);
const frames = Array.from({ length: PORTS }, (_, variant) => all.flatMap((found) => found[variant] ?? [])).flat();
const wire = new Wire(namespace, Number(ifindex));
const began = performance.now();
let sent = 0;
while (sent < Number(count) && !ended) {
  const allowed = ((performance.now() - began) / 1_000) * Number(perSecond);
  const until = Math.min(sent + BURST, Number(count), Math.floor(allowed));
  for (; sent < until; sent++) wire.send(frames[sent % frames.length] ?? new Uint8Array());
  await new Promise((resolve) => (sent < allowed ? setImmediate(resolve) : setTimeout(resolve, 1)));
}
wire.close();
process.stdout.write(`${sent}\n`, () => process.exit(0));
