import type { Endpoint } from '#dns/dns-options.js';

const PORT = 5_300;
let last = 0;

/** An address of this machine that nobody else uses while this process lives. */
export function loopback(): string {
  last++;
  if (last > 254) throw new RangeError('there are no addresses left');
  return `127.${128 + ((process.pid >> 8) & 63)}.${process.pid & 255}.${last}`;
}

export function endpoint(): Endpoint {
  return { host: loopback(), port: PORT };
}
