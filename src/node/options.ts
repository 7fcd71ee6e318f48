import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { Logger } from 'pino';
import type { PartSettings } from '#actors/reload.actor.js';
import { parseIpv4Address } from '#addresses/ip-address.js';
import { readConsoleFiles } from '#api/console/console-files.js';
import type { createApi } from '#api/server.js';
import type { Cluster, ClusterOptions } from '#cluster/cluster.js';
import type { PeerIdentity } from '#cluster/peers/peer-identity.js';
import type { Config } from '#config/config.js';
import type { DnsSettings, ServicePlaneSettings } from '#contracts/config/config-reload.js';
import { policedFamilies } from '#contracts/datapath/datapath-options.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { exemptBit, upstreamBits } from '#dataplane/abi/settings.js';
import type { DnsOptions } from '#dns/dns-options.js';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { parseHostname } from '#policy/model/names/hostname.js';
import type { ServicePlaneOptions } from '#service-plane/service-plane-options.js';
import { connectionLimit } from '#sockets/listening/connection-limit.js';
import { fileSeal } from '#store/settings/seal.js';
import type { KvStore } from '#store/store-types.js';
import { built } from '#threads/built-file.js';

/** Returns the settings that a reload sends to running parts of the node. */
export function partSettings({ dataplane, dns, servicePlane }: Config): PartSettings {
  return {
    interfaces: dataplane?.interfaces ?? null,
    dns: dns === null ? null : dnsSettings(dns),
    servicePlane: servicePlane === null ? null : servicePlaneSettings(servicePlane),
  };
}

function dnsSettings({ transparent: _, ...dns }: NonNullable<Config['dns']>): DnsSettings {
  return { ...dns, rebindAllow: patternsOf(dns.rebindAllow), canaryNames: patternsOf(dns.canaryNames) };
}

function patternsOf(names: readonly string[]): readonly HostnamePattern[] {
  return names.flatMap((text) => {
    const parsed = parseHostname(text);
    return 'pattern' in parsed ? [parsed.pattern] : [];
  });
}

function servicePlaneSettings({
  listen: _,
  workers: __,
  ...settings
}: NonNullable<Config['servicePlane']>): ServicePlaneSettings {
  return settings;
}

export function dnsOptions(dns: NonNullable<Config['dns']>, dataplane: Config['dataplane']): DnsOptions {
  return {
    ...dnsSettings(dns),
    transparent: dns.transparent,
    grantsIpv6: dataplane?.ipv6 === 'enforce',
    mark: dataplane === null ? 0 : exemptBit(dataplane.markMask),
  };
}

export function servicePlaneOptions(
  { listen, ...plane }: NonNullable<Config['servicePlane']>,
  dataplane: Config['dataplane'],
): ServicePlaneOptions {
  const address = parseIpv4Address(listen.host);
  if (address === undefined) throw new Error(`service_plane.listen: ${listen.host} is not an IPv4 address`);
  const mark = dataplane === null ? 0 : exemptBit(dataplane.markMask);
  const upstreamMark = dataplane === null ? 0 : upstreamBits(dataplane.markMask);
  const families = policedFamilies(dataplane ?? { ipv6: 'drop' });
  return { ...plane, families, listen: { address, port: listen.port }, mark, upstreamMark };
}

/**
 * Returns the function with which the node joins a cluster: it receives the local store and returns the
 * cluster. Null if the configuration has no `cluster` section.
 */
export async function clusterOpener(
  config: Config,
  version: string,
  log: Logger,
): Promise<((kv: KvStore) => Cluster) | null> {
  const { cluster: configured, node } = config;
  if (configured === null) return null;
  const { Cluster } = await import('#cluster/cluster.js');
  const { OwnIdentity } = await import('./own-identity.js');
  const { tls } = configured.peer;
  const { history } = config.policy;
  if (tls !== null) {
    const failed = (reason: string): void =>
      log.error(`the certificate of cluster.peer.tls could not be renewed: ${reason}`);
    return (kv) =>
      new Cluster(kv, { ...clusterOptions(config, configured, version, fileIdentity(tls, failed)), history });
  }
  return (kv) => {
    const own = new OwnIdentity(node.id, join(node.dataDir, 'peer-identity.pem'));
    const cluster = new Cluster(kv, { ...clusterOptions(config, configured, version, own.next), history });
    cluster.certificate.identity.subscribe((identity) => {
      own
        .keep(identity)
        .catch((failure: Error) => log.warn(`the peer certificate could not be stored: ${failure.message}`));
    });
    return cluster;
  };
}

function clusterOptions(
  { node: { id }, dataplane }: Config,
  { etcd, peer, prefix, sealKeyFile }: NonNullable<Config['cluster']>,
  version: string,
  identity: ClusterOptions['identity'],
): ClusterOptions {
  const { endpoints, tls, user } = etcd;
  const { host, port } = peer.advertise;
  return {
    etcd: {
      endpoints,
      tls: tls === null ? null : { ca: pemIn(tls.ca), cert: pemIn(tls.cert), key: pemIn(tls.key) },
      user: user === null ? null : { name: user.name, password: passwordIn(user) },
    },
    prefix,
    access: () => ({
      prefix,
      endpoints,
      tls: tls === null ? null : { ca: textIn(tls.ca), cert: textIn(tls.cert), key: textIn(tls.key) },
      user: user === null ? null : { name: user.name, password: passwordIn(user) },
      sealKey: sealKeyFile === null ? null : textIn(sealKeyFile),
    }),
    self: {
      id,
      address: `${isIPv6(host) ? `[${host}]` : host}:${port}`,
      version,
      ...(dataplane && { ipv6: dataplane.ipv6 }),
    },
    identity,
    local: sealKeyFile === null ? ['setting/tls-intercept-ca'] : [],
    seal: sealKeyFile === null ? null : fileSeal(sealKeyFile, true),
  };
}

type TlsFiles = { readonly ca: string; readonly cert: string; readonly key: string };

/**
 * Reads the certificate from files, and reads them again after a file was changed. If the changed files are
 * not usable, keeps the present certificate and calls `failed` once for each reason.
 */
function fileIdentity(tls: TlsFiles, failed: (reason: string) => void): ClusterOptions['identity'] {
  let reported = '';
  const read = (): PeerIdentity => {
    const files = { cert: pemIn(tls.cert), key: pemIn(tls.key), ca: pemIn(tls.ca) };
    if (!new X509Certificate(files.cert).checkPrivateKey(createPrivateKey(files.key)))
      throw new Error(`${tls.key} is not the key of the certificate ${tls.cert}`);
    // Throws if a further certificate of the files cannot be read.
    createSecureContext({ ...files, minVersion: 'TLSv1.3' });
    void new X509Certificate(files.ca);
    return files;
  };
  return (present) => {
    if (present === null) return read();
    try {
      const next = read();
      reported = '';
      return (['cert', 'key', 'ca'] as const).every((name) => String(next[name]) === String(present[name]))
        ? present
        : next;
    } catch (failure) {
      const reason = failure instanceof Error ? failure.message : String(failure);
      if (reason !== reported) failed(reason);
      reported = reason;
      return present;
    }
  };
}

/**
 * Returns the options of the API. The server reads the limits and the host names from `api` at each use, so
 * that a reload can change them.
 */
export function apiOptions(api: () => Config['api'], version: string, log: Logger): Parameters<typeof createApi>[1] {
  const { listen, tls, maxConnections, console } = api();
  return {
    version,
    settings: () => ({
      hosts: [listen.host, ...api().allowedHosts],
      requestsPerWindow: api().requestsPerSecond,
      failedLoginsPerWindow: api().failedLoginsPerMinute,
      requestTimeoutMs: api().requestTimeoutMs,
    }),
    refuses: connectionLimit(() => api().maxConnectionsPerSource, 'api'),
    logger: log,
    ...(tls === null ? {} : { tls: { cert: pemIn(tls.cert), key: pemIn(tls.key) } }),
    limits: { connections: maxConnections },
    console: console ? readConsoleFiles(built('console')) : null,
  };
}

const passwordIn = ({ passwordFile }: { readonly passwordFile: string }): string =>
  readBoundedSync(passwordFile, MAX_BYTES.secret).toString().trim();
const textIn = (path: string): string => pemIn(path).toString();
const pemIn = (path: string): Buffer => readBoundedSync(path, MAX_BYTES.certificates);
