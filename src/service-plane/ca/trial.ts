import { randomBytes } from 'node:crypto';
import { duplexPair } from 'node:stream';
import { connect, DEFAULT_CIPHERS, TLSSocket } from 'node:tls';
import { type UntrustedReason, untrustedReason } from '../untrusted-reason.js';
import { certificatesIn, type InterceptCa } from './intercept-ca.js';
import { LeafContexts } from './leaf-contexts.js';

const NAME = 'weir-trial.invalid';

/**
 * Returns why a client that trusts the last certificate of the CA's chain would reject a leaf certificate;
 * null if the client accepts the leaf certificate. The handshake runs inside the process, without network
 * packets.
 */
export async function tryCa(ca: InterceptCa, now: Date): Promise<UntrustedReason | null> {
  const contexts = new LeafContexts({ ticketKeys: randomBytes(48), now: () => now });
  contexts.use(ca);
  const secureContext = contexts.of(NAME);
  if (secureContext === null) throw new RangeError('try a CA: it is not valid now');
  const [near, far] = duplexPair();
  const server = new TLSSocket(far, { isServer: true, secureContext });
  const client = connect({
    socket: near,
    servername: NAME,
    ca: certificatesIn(ca.certPem + ca.chainPem).at(-1),
    allowPartialTrustChain: true,
    ciphers: `${DEFAULT_CIPHERS}:@SECLEVEL=2`,
  });
  try {
    await new Promise<void>((resolve, reject) => {
      server.on('error', reject);
      client.on('error', reject).once('secureConnect', resolve);
    });
    return null;
  } catch (failure) {
    return untrustedReason(failure) ?? 'other';
  } finally {
    for (const end of [client, server, near, far]) end.destroy();
  }
}
