import { X509Certificate } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import { AUTHORITY, type Issued, Issuer } from '../../certificate/issued.js';
import { recordFlight } from '../flight.js';
import { alpnOf, echOf, extension, hello, helloMessage, records, sniOf, versionsOf } from '../hello-bytes.js';
import { helloOfNode } from '../recorded-hello.js';

export type Seeds = {
  readonly hellos: readonly Uint8Array[];
  readonly flights: readonly Uint8Array[];
  readonly certificates: readonly Uint8Array[];
  readonly root: Issued;
};

/**
 * Creates inputs for fuzzing: ClientHellos, server flights and certificates. Node and OpenSSL produce most of
 * them.
 */
export async function makeSeeds(): Promise<Seeds> {
  const issuer = new Issuer();
  try {
    const root = issuer.issue({ subject: '/O=Weir/CN=Root', extensions: AUTHORITY });
    const names = 'subjectAltName=DNS:a.example.com,DNS:*.example.com,IP:192.0.2.1';
    const leaf = issuer.issue({ subject: '/C=DE/O=Ex, Inc./CN=a.example.com', by: root, extensions: [names] });
    const serving = { key: leaf.key, cert: leaf.pem + root.pem };
    const tls12 = { maxVersion: 'TLSv1.2' } as const;
    const { flight, session } = await recordFlight(serving, tls12);
    const extensions = [
      extension(0x0a0a),
      sniOf('a.example.com'),
      alpnOf('h2', 'http/1.1'),
      versionsOf(0x0304),
      echOf(),
    ];
    return {
      hellos: [
        await helloOfNode({ servername: 'node.example.com', ALPNProtocols: ['h2'] }),
        await helloOfNode({ servername: 'old.example.com', ...tls12 }),
        hello(...extensions),
        records(helloMessage({ extensions }), 40),
      ],
      flights: [
        flight,
        (await recordFlight(serving, session === undefined ? tls12 : { ...tls12, session })).flight,
        (await recordFlight(serving, {})).flight,
        (await recordFlight({ ...serving, ecdhCurve: 'P-384' }, { ecdhCurve: 'P-256:P-384' })).flight,
      ],
      certificates: [leaf.der, root.der, ...rootCertificates.slice(0, 20).map((pem) => new X509Certificate(pem).raw)],
      root,
    };
  } finally {
    issuer.close();
  }
}
