import type { Logger } from 'pino';
import type { createApi } from '#api/server.js';
import { Cluster, type ClusterOptions } from '#cluster/cluster.js';
import type { Config } from '#config/config.js';
import { exemptBit } from '#dataplane/abi/settings.js';
import type { DnsOptions } from '#dns/dns-options.js';
import { MOST_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { parseHostname } from '#policy/model/hostname.js';
import { parseAddress } from '#policy/model/ipv4.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import { connectionLimit } from '#sockets/connection-limit.js';
import { fileSeal } from '#store/seal.js';
import type { KvStore } from '#store/store-types.js';

export function dnsOptions(dns: NonNullable<Config['dns']>, dataplane: Config['dataplane']): DnsOptions {
  const rebindAllow = dns.rebindAllow.flatMap((text) => {
    const parsed = parseHostname(text);
    return 'pattern' in parsed ? [parsed.pattern] : [];
  });
  return { ...dns, rebindAllow, mark: dataplane === null ? 0 : exemptBit(dataplane.markMask) };
}

export function servicePlaneOptions(
  { listen, ...plane }: NonNullable<Config['servicePlane']>,
  dataplane: Config['dataplane'],
): ServicePlaneOptions {
  const address = parseAddress(listen.host);
  if (address === undefined) throw new Error(`${listen.host} is not an IPv4 address`);
  const mark = dataplane === null ? 0 : exemptBit(dataplane.markMask);
  return { ...plane, listen: { address, port: listen.port }, mark };
}

/**
 * Returns the function with which the node joins a cluster: it receives the local store and returns the
 * cluster. Null if the configuration has no `cluster` section.
 */
export function clusterOpener(config: Config, version: string): ((kv: KvStore) => Cluster) | null {
  const { cluster } = config;
  return cluster === null ? null : (kv) => new Cluster(kv, clusterOptions(config.node.id, cluster, version));
}

function clusterOptions(
  id: string,
  { etcd, peer, prefix, sealKeyFile }: NonNullable<Config['cluster']>,
  version: string,
): ClusterOptions {
  const { endpoints, tls, user } = etcd;
  const { host, port } = peer.advertise;
  return {
    etcd: {
      endpoints,
      tls: tls === null ? null : { ca: pemIn(tls.ca), cert: pemIn(tls.cert), key: pemIn(tls.key) },
      user:
        user === null
          ? null
          : { name: user.name, password: readBoundedSync(user.passwordFile, MOST_BYTES.secret).toString().trim() },
    },
    prefix,
    self: { id, address: `${host}:${port}`, version },
    local: sealKeyFile === null ? ['setting/tls-intercept-ca'] : [],
    seal: sealKeyFile === null ? null : fileSeal(sealKeyFile, true),
  };
}

export function apiOptions(config: Config, version: string, log: Logger): Parameters<typeof createApi>[1] {
  const { listen, tls, allowedHosts, requestsPerSecond, failedLoginsPerMinute, requestTimeoutMs, maxConnections } =
    config.api;
  return {
    version,
    hosts: [listen.host, ...allowedHosts],
    refuses: connectionLimit(config.api.maxConnectionsPerSource, 'api'),
    logger: log,
    ...(tls === null ? {} : { tls: { cert: pemIn(tls.cert), key: pemIn(tls.key) } }),
    limits: {
      requestsPerWindow: requestsPerSecond,
      failedLoginsPerWindow: failedLoginsPerMinute,
      requestTimeoutMs,
      connections: maxConnections,
    },
  };
}

const pemIn = (path: string): Buffer => readBoundedSync(path, MOST_BYTES.certificates);
