import { Duplex } from 'node:stream';

/**
 * Returns two streams in memory. Data that is written to one stream arrives at the other. `tap` gets a copy
 * of the data that is written to the second stream.
 */
export function memoryPair(tap: (chunk: Buffer) => void = () => {}): readonly [Duplex, Duplex] {
  const ends: Duplex[] = [];
  const end = (other: number, see: (chunk: Buffer) => void): Duplex =>
    new Duplex({
      read() {},
      write(chunk: Buffer, _, done) {
        see(chunk);
        setImmediate(() => {
          ends[other]?.push(chunk);
          done();
        });
      },
      final(done) {
        setImmediate(() => {
          ends[other]?.push(null);
          done();
        });
      },
    });
  const first = end(1, () => {});
  const second = end(0, tap);
  ends.push(first, second);
  return [first, second];
}
