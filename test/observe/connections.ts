import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import { address } from '#test/policy/sample.js';

/** Returns the report of a denied TLS connection, with the fields in `of` replaced. */
export function seenConnection(of: Partial<SeenConnection> = {}): SeenConnection {
  return {
    kind: 'tls',
    atMs: 1_000,
    source: address('10.0.0.7'),
    sourcePort: 40_000,
    destination: address('192.0.2.1'),
    destinationPort: 443,
    generation: 7,
    decider: { kind: 'rule', group: 'lan', rule: 'no' },
    verdict: 'deny',
    reason: null,
    sni: 'www.example.com',
    http: null,
    ...of,
  };
}

export function request(path: string, of: Partial<SeenConnection> = {}): SeenConnection {
  return seenConnection({ kind: 'http', http: { method: 'GET', host: 'www.example.com', path }, ...of });
}
