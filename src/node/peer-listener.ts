import type { Logger } from 'pino';
import type { Api } from '#api/api.js';
import type { Management } from '#api/management.js';
import { createApi } from '#api/server.js';
import type { PeerCertificate } from '#cluster/peers/peer-certificate.js';
import type { PeerIdentity } from '#cluster/peers/peer-identity.js';
import type { Config } from '#config/config.js';

type Peer = NonNullable<Config['cluster']>['peer'];

/** Makes the peer listener, to which the other nodes of the cluster connect. It does not listen yet. */
export async function createPeerListener(
  management: Management,
  certificate: PeerCertificate,
  { listen, advertise }: Peer,
  { version, logger }: { readonly version: string; readonly logger: Logger },
): Promise<Api> {
  const listener = await createApi(management, {
    version,
    logger,
    hosts: [listen.host, advertise.host],
    tls: certificate.present,
    listener: 'peers',
  });
  const { server } = listener as unknown as { readonly server: { setSecureContext(options: object): void } };
  const renewing = certificate.identity.subscribe(({ ca, ...own }: PeerIdentity) => {
    server.setSecureContext({ ...own, ...(ca === null ? {} : { ca }), minVersion: 'TLSv1.3' });
  });
  listener.addHook('onClose', async () => renewing.unsubscribe());
  return listener;
}
