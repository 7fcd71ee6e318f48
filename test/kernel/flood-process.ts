import { Wire } from './wire.js';

/**
 * A program that sends frames: `node flood-process.js NAMESPACE IFINDEX COUNT PER_SECOND`. The first line of
 * its standard input is a JSON array of frames in hexadecimal, which it sends in turn. It prints the number
 * of sent frames when it has sent COUNT frames, or when its standard input closes.
 */

/** Frames between two looks at the clock and at the standard input. */
const BURST = 128;

const [namespace = '', ifindex, count, perSecond] = process.argv.slice(2);
let ended = false;
let text = '';
const given = new Promise<readonly string[]>((resolve) => {
  process.stdin.setEncoding('utf8');
  process.stdin.on('data', (data: string) => {
    text += data;
    if (text.includes('\n')) resolve(JSON.parse(text.split('\n', 1)[0] ?? '') as string[]);
  });
});
process.stdin.on('end', () => {
  ended = true;
});

const frames = (await given).map((frame) => Buffer.from(frame, 'hex'));
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
