import type { Config } from './config.js';

/** A file whose path is in the configuration, with its dotted configuration key, such as `api.tls.key`. */
export type NamedFile = { readonly key: string; readonly path: string };

/**
 * Returns the files that the node reads and that must exist when it starts. `policy.file` and
 * `policy.assertions_file` are not among them: the node starts without them, and waits for them.
 */
export function requiredFiles({ api, findings, metrics, servicePlane, cluster }: Config): readonly NamedFile[] {
  const named: [string, string | null | undefined][] = [
    ['api.tls.cert', api.tls?.cert],
    ['api.tls.key', api.tls?.key],
    ['findings.webhook.secret_file', findings.webhook?.secretFile],
    ['metrics.tls.cert', metrics.tls?.cert],
    ['metrics.tls.key', metrics.tls?.key],
    ['service_plane.upstream_ca', servicePlane?.upstreamCa === 'system' ? null : servicePlane?.upstreamCa],
    ['cluster.etcd.tls.ca', cluster?.etcd.tls?.ca],
    ['cluster.etcd.tls.cert', cluster?.etcd.tls?.cert],
    ['cluster.etcd.tls.key', cluster?.etcd.tls?.key],
    ['cluster.etcd.password_file', cluster?.etcd.user?.passwordFile],
    ['cluster.peer.tls.ca', cluster?.peer.tls?.ca],
    ['cluster.peer.tls.cert', cluster?.peer.tls?.cert],
    ['cluster.peer.tls.key', cluster?.peer.tls?.key],
    ['cluster.seal_key_file', cluster?.sealKeyFile],
  ];
  return named.flatMap(([key, path]) => (path === null || path === undefined ? [] : [{ key, path }]));
}

/** Returns all files that the node reads because its configuration names them. */
export function namedFiles(config: Config): readonly NamedFile[] {
  const { file, assertionsFile } = config.policy;
  return [
    ...requiredFiles(config),
    ...(file === null ? [] : [{ key: 'policy.file', path: file }]),
    ...(assertionsFile === null ? [] : [{ key: 'policy.assertions_file', path: assertionsFile }]),
  ];
}
