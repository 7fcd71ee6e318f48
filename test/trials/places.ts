import { type Place, SITES } from './internet.js';

/** Reads a URL, or a target such as `ssh 10.3.0.80`, `tcp 10.3.0.80:23` or `dig example.com @10.0.0.53`. */
export function placeOf(target: string): Place {
  if (target.startsWith('http')) {
    const { hostname, protocol, port } = new URL(target);
    const isName = !/^[\d.]+$/.test(hostname);
    const number = port === '' ? { 'http:': 80, 'https:': 443 }[protocol] : Number(port);
    return { address: SITES[hostname]?.address ?? hostname, port: number ?? null, name: isName ? hostname : null };
  }
  const [program = '', ...words] = target.split(' ');
  if (program === 'dig') {
    const server = words.find((word) => word.startsWith('@'))?.slice(1) ?? null;
    return { address: server, port: 53, name: words[0] ?? null };
  }
  const [address = null, port] = words[0]?.split(':') ?? [];
  return { address, port: program === 'ssh' ? 22 : port === undefined ? null : Number(port), name: null };
}
