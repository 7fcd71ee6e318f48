import type { Endpoint } from '#dns/dns-options.js';

const PORT = 5_300;
let last = 0;

/**
 * Returns a new address of 127.0.0.0/8. The address contains bits of the process id, so that parallel test
 * processes use different addresses.
 */
export function loopback(): string {
  last++;
  if (last > 254) throw new RangeError('there are no addresses left');
  return `127.${128 + ((process.pid >> 8) & 63)}.${process.pid & 255}.${last}`;
}

export function endpoint(): Endpoint {
  return { host: loopback(), port: PORT };
}
