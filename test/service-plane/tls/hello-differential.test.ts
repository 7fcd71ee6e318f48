import { PassThrough } from 'node:stream';
import { createSecureContext } from 'node:tls';
import { getExtensionData, readTlsClientHello } from 'read-tls-client-hello';
import { afterAll, describe, expect, it } from 'vitest';
import type { ClientHello, HelloFacts } from '#contracts/service-plane/tls-facts.js';
import { HelloReader } from '#service-plane/tls/hello/hello-reader.js';
import { Random, seedOf } from '#test/seed.js';
import { Issuer } from '../certificate/issued.js';
import { read } from './chunks.js';
import { alpnOf, echOf, extension, hello, sniOf, versionsOf } from './hello-bytes.js';
import { anySplit, mutant } from './mutant.js';
import { serverNameByOpenssl } from './openssl-view.js';
import { helloOfNode, helloOfProgram } from './recorded-hello.js';

const factsOf = (bytes: Uint8Array): HelloFacts | null => new HelloReader().push(bytes);
const issuer = new Issuer();
afterAll(() => issuer.close());
const { key, pem } = issuer.issue({ subject: '/CN=server' });
const context = createSecureContext({ key, cert: pem, minVersion: 'TLSv1', ciphers: 'ALL:@SECLEVEL=0' });

const bare = (name: string): string => name.toLowerCase().replace(/\.$/, '');

/**
 * Returns the server name and the ALPN protocols that the package read-tls-client-hello reads; null if the
 * package rejects the bytes.
 */
async function secondView(bytes: Uint8Array): Promise<readonly [string | null, readonly string[]] | null> {
  const read = await readTlsClientHello(new PassThrough().end(bytes)).catch(() => null);
  if (read === null) return null;
  const name = getExtensionData(read, 0)?.serverName;
  return [name === undefined ? null : bare(name), getExtensionData(read, 16)?.protocols ?? []];
}

const sClient = (...more: readonly string[]): Promise<Buffer> =>
  helloOfProgram('openssl', (path) => ['s_client', '-unix', path, ...more]);
const curl = (url: string, ...more: readonly string[]): Promise<Buffer> =>
  helloOfProgram('curl', (path) => ['-s', '-k', '--unix-socket', path, ...more, url]);
const weak = ['-cipher', 'ALL:@SECLEVEL=0'];

const named: ClientHello = { kind: 'hello', sni: 'a.example.com', ech: false, alpn: [], offersTls13: false };
const rows: readonly (readonly [string, () => Promise<Buffer>, ClientHello])[] = [
  ['s_client 1.0', () => sClient('-tls1', ...weak, '-servername', 'a.example.com'), named],
  ['s_client 1.1', () => sClient('-tls1_1', ...weak, '-servername', 'a.example.com'), named],
  ['s_client 1.2', () => sClient('-tls1_2', '-servername', 'A.Example.com'), named],
  ['s_client 1.2 without a name', () => sClient('-tls1_2', '-noservername'), { ...named, sni: null }],
  ['s_client 1.3', () => sClient('-tls1_3', '-servername', 'a.example.com'), { ...named, offersTls13: true }],
  [
    's_client with protocols',
    () => sClient('-servername', 'a.example.com', '-alpn', 'h2,http/1.1,x'),
    { ...named, offersTls13: true, alpn: ['h2', 'http/1.1', 'x'] },
  ],
  [
    's_client with many groups and stapling',
    () => sClient('-servername', 'a.example.com', '-status', '-groups', 'P-521:X25519:P-256', '-sigalgs', 'RSA+SHA256'),
    { ...named, offersTls13: true },
  ],
  [
    'Node',
    () => helloOfNode({ servername: 'a.example.com', ALPNProtocols: ['http/1.1'] }),
    { ...named, offersTls13: true, alpn: ['http/1.1'] },
  ],
  ['Node 1.2', () => helloOfNode({ servername: 'a.example.com', maxVersion: 'TLSv1.2' }), named],
  ['curl', () => curl('https://a.example.com/', '--http1.1'), { ...named, offersTls13: true, alpn: ['http/1.1'] }],
  [
    'curl for an address',
    () => curl('https://192.0.2.1/', '--http1.1'),
    { ...named, sni: null, offersTls13: true, alpn: ['http/1.1'] },
  ],
];

describe('HelloReader and the ClientHello of a real client', () => {
  it.each(rows)(
    '`HelloReader` reads the ClientHello of the TLS client %s as OpenSSL and a second parser read it',
    async (_, record, facts) => {
      const bytes = await record();
      expect(factsOf(bytes)).toEqual(facts);
      const byOpenssl = await serverNameByOpenssl(context, bytes);
      expect(typeof byOpenssl === 'string' ? bare(byOpenssl) : byOpenssl).toBe(facts.sni);
      expect(await secondView(bytes)).toEqual([facts.sni, facts.alpn]);
    },
  );
});

describe('HelloReader and a mutated ClientHello', () => {
  const seeds = async (): Promise<readonly Uint8Array[]> => [
    hello(sniOf('good.example.com'), alpnOf('h2', 'http/1.1'), versionsOf(0x0303)),
    hello(extension(0x0a0a), versionsOf(0x0303), sniOf('Good.Example.com.'), echOf()),
    hello(alpnOf('h2')),
    await helloOfNode({ servername: 'node.example.com', ALPNProtocols: ['h2', 'http/1.1'] }),
    await helloOfNode({ servername: 'old.example.com', maxVersion: 'TLSv1.2' }),
  ];

  it('`HelloReader` reads from a mutated ClientHello the server name that OpenSSL and a second parser read, or rejects the bytes', async () => {
    const random = new Random(seedOf(20_261_122));
    const from = await seeds();
    const outcomes = { agreedByOpenssl: 0, agreedByAnother: 0, refusedByOpenssl: 0, unreadable: 0, open: 0 };
    for (let round = 0; round < 5_000; round++) {
      const bytes = mutant(random, from);
      const facts = factsOf(bytes);
      expect(read(new HelloReader(), anySplit(random, bytes))).toEqual(facts);
      if (facts?.kind !== 'hello') {
        outcomes[facts === null ? 'open' : 'unreadable']++;
        continue;
      }
      const second = await secondView(bytes);
      if (second !== null) {
        outcomes.agreedByAnother++;
        expect({ bytes, sni: second[0] }).toEqual({ bytes, sni: facts.sni });
      }
      const byOpenssl = await serverNameByOpenssl(context, bytes);
      if (byOpenssl === undefined) {
        outcomes.refusedByOpenssl++;
        continue;
      }
      outcomes.agreedByOpenssl++;
      expect({ bytes, sni: byOpenssl === null ? null : bare(byOpenssl) }).toEqual({ bytes, sni: facts.sni });
    }
    expect(Object.values(outcomes).filter((count) => count < 100)).toEqual([]);
  });
});
