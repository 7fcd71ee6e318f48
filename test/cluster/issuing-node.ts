import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { encodeJoinToken } from '#cluster/peers/join-tokens.js';
import { fingerprintOf } from '#cluster/peers/peer-identity.js';
import { selfSigned } from '#service-plane/ca/signed-certificate.js';
import { CERTIFICATE, KEY } from '#test/api/certificate.js';

const ACCESS = JSON.stringify({
  prefix: '/weir',
  endpoints: ['https://127.0.0.1:2379'],
  tls: { ca: CERTIFICATE, cert: CERTIFICATE, key: KEY },
  user: { name: 'weir', password: 'secret' },
  seal_key: 'seal\n',
});

/**
 * Starts a server that answers one join token as the peer listener of a node does, until the test ends.
 * `onRedeemed` runs before the answer.
 */
export async function issuingNode(onRedeemed: () => void = () => {}, answer = ACCESS) {
  let redeemed = 0;
  const identity = selfSigned('node');
  const server = createServer({ ...identity, minVersion: 'TLSv1.3' }, (_, response) => {
    redeemed += 1;
    onRedeemed();
    response.end(answer);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const token = encodeJoinToken({ address, fingerprint: fingerprintOf(identity.cert), secret: 'secret' });
  return { token, redeemed: () => redeemed };
}
