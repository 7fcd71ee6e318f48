import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { WatchedIntegration } from '#contracts/kubernetes/kubernetes-source.js';
import { MAX_BYTES, readBounded } from '#files/bounded-file.js';
import type { ApiServer } from '#kubernetes/api-server/api-session.js';
import type { IntegrationTarget } from '#kubernetes/watch/integration-watch.js';

/** Kubernetes mounts the files of the service account here. */
const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/**
 * Returns the API server of an integration. `cluster` is a digest of the address and the CA, or of the
 * address alone with `in_cluster`. Two clusters can have the same address. The CA distinguishes them: a
 * cluster that was created again begins its resource versions anew.
 */
export function watchedServer(
  { access }: WatchedIntegration,
  serviceAccountFolder = SERVICE_ACCOUNT,
): Omit<IntegrationTarget, 'wanted'> {
  if (access.by === 'in_cluster') {
    const { url, credentials } = inCluster(serviceAccountFolder);
    const cluster = digest(['in_cluster', url]);
    // The files are read again for each connection, so a new token does not restart the watches.
    return { server: { url, credentials }, serverKey: cluster, cluster };
  }
  const { url, caPem, token } = access;
  const cluster = digest([url, caPem]);
  return { server: { url, credentials: async () => ({ caPem, token }) }, serverKey: digest([cluster, token]), cluster };
}

function inCluster(folder: string): ApiServer {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = '443' } = process.env;
  const address = host?.includes(':') ? `[${host}]` : host;
  return {
    url: `https://${address ?? 'kubernetes.default.svc'}:${port}`,
    credentials: async () => {
      if (host === undefined) throw new Error('KUBERNETES_SERVICE_HOST is not set: Weir does not run in a cluster');
      const [ca, token] = await Promise.all([
        readBounded(join(folder, 'ca.crt'), MAX_BYTES.certificates),
        readBounded(join(folder, 'token'), MAX_BYTES.secret),
      ]);
      return { caPem: ca.toString('utf8'), token: token.toString('utf8').trim() };
    },
  };
}

function digest(parts: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}
