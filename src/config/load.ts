import { X509Certificate } from 'node:crypto';
import { statfsSync } from 'node:fs';
import { isIP, SocketAddress } from 'node:net';
import { createSecureContext, type SecureContextOptions } from 'node:tls';
import type { z } from 'zod';
import { familyOf } from '#addresses/ip-address.js';
import { append } from '#arrays/append.js';
import { configSchema, type ParsedConfig } from '#config/schema/config-schema.js';
import { checkBounded, MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { reasonOf } from '#files/system-failure.js';
import { type Config, configOf } from './config.js';
import { ConfigError, type ConfigProblem } from './config-problem.js';
import { type Environment, readSource, type Source } from './config-source.js';
import { type DisclosedConfig, disclose } from './disclosure.js';
import { requiredFiles } from './named-files.js';
import { isLoopback, type ListenAddress } from './value.js';

/**
 * The configuration of a file. `disclosed`: the configuration as a support dump may show it. `parsed`: the
 * configuration by the keys of the file.
 */
export type ReadConfig = {
  readonly config: Config;
  readonly disclosed: DisclosedConfig;
  readonly parsed: ParsedConfig;
};

/** Reads, validates and freezes the configuration. Throws a `ConfigError` that contains all problems. */
export function loadConfig(file: string, environment: Environment = process.env): Config {
  return readConfig(file, environment).config;
}

/** Like `loadConfig`, but also returns the configuration that a support dump may show. */
export function readConfig(file: string, environment: Environment = process.env): ReadConfig {
  let yaml: string;
  try {
    yaml = readBoundedSync(file, MAX_BYTES.config).toString();
  } catch (cause) {
    throw new ConfigError([{ code: 'unreadable', key: '', where: file, message: reasonOf(cause) }], false, { cause });
  }
  return parseConfig(yaml, file, environment);
}

/** Parses the text of a configuration file. Problems show `name` as the name of the file. */
export function parseConfig(yaml: string, name: string, environment: Environment): ReadConfig {
  const source = readSource(yaml, name, environment);
  const unset = source.problems.some(({ code }) => code === 'syntax' || code === 'unset_variable');
  if (unset) throw new ConfigError(source.problems, areInText(source.problems));

  const parsed = configSchema.safeParse(source.value, { reportInput: true });
  const problems = [...source.problems];
  if (!parsed.success) {
    append(
      problems,
      parsed.error.issues.flatMap((issue) => problemsOf(issue, source)),
    );
    throw new ConfigError(problems, areInText(problems));
  }
  const config = configOf(parsed.data);
  const missing = missingFiles(config, source);
  append(problems, [...contradictions(config, source), ...etcdContradictions(parsed.data, source)]);
  append(problems, sharedAddresses(config, source));
  const isInText = problems.length > 0;
  append(problems, [...missing, ...notPinnable(config, source)]);
  if (missing.length === 0) append(problems, unusableFiles(config, source));
  if (problems.length > 0) throw new ConfigError(problems, isInText);
  return { config, disclosed: disclose(source, parsed.data), parsed: parsed.data };
}

/**
 * Returns whether the text itself causes a problem. A missing key does not count, because a variable that is
 * not set can be the reason.
 */
const areInText = (problems: readonly ConfigProblem[]): boolean =>
  problems.some(({ code }) => code !== 'unset_variable' && code !== 'missing_key');

function problemsOf(issue: z.core.$ZodIssue, source: Source): ConfigProblem[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => problem('unknown_key', [...issue.path, key], 'there is no such key', source));
  }
  if (issue.input === undefined) return [problem('missing_key', issue.path, 'is required', source)];
  return [problem('invalid_value', issue.path, plain(issue), source)];
}

/**
 * Replaces zod's messages about wrong types, such as "Invalid input: expected object, received string", with
 * messages for operators.
 */
function plain({ message, code }: z.core.$ZodIssue): string {
  if (code !== 'invalid_type') return message;
  return message.replace(/^Invalid input: expected (\w+), received (\w+)$/, (_, expected: string) =>
    expected === 'object' ? 'must be a section with keys' : expected === 'array' ? 'must be a list' : 'must be text',
  );
}

function problem(
  code: ConfigProblem['code'],
  path: readonly PropertyKey[],
  message: string,
  source: Source,
): ConfigProblem {
  return { code, key: path.join('.'), where: source.where(path, code === 'unknown_key' ? 'key' : 'value'), message };
}

function contradictions({ api, dataplane, dns, metrics, kubernetes }: Config, source: Source): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  if (api.tls === null && !isLoopback(api.listen.host)) {
    const message = `${api.listen.host} is not a loopback address, and there is no api.tls: clients would send tokens without encryption`;
    problems.push(problem('insecure_bind', ['api', 'listen'], message, source));
  }
  if (dns !== null && dns.minGrantMs > dns.maxGrantMs) {
    problems.push(problem('invalid_value', ['dns', 'min_grant'], 'must not be longer than dns.max_grant', source));
  }
  if (dataplane?.ipv6 !== 'enforce') {
    for (const [index, { host }] of (dns?.listen ?? []).entries()) {
      if (isIP(host) !== 6) continue;
      const message = 'is an IPv6 address, which needs dataplane.ipv6: enforce';
      problems.push(problem('invalid_value', ['dns', 'listen', index], message, source));
    }
  }
  if (metrics.tls !== null && metrics.listen === null) {
    problems.push(problem('invalid_value', ['metrics', 'tls'], 'must not be given without metrics.listen', source));
  }
  if (!kubernetes.ipv6 && kubernetes.podNetworks?.some(({ address }) => familyOf(address) === 'ipv6') === true) {
    const message = 'must not have IPv6 networks without dataplane.ipv6: enforce';
    problems.push(problem('invalid_value', ['kubernetes', 'pod_cidrs'], message, source));
  }
  return problems;
}

type Listening = { readonly path: readonly PropertyKey[]; readonly at: ListenAddress };

/** Returns a problem for each TCP listener whose address another listener of the node uses. */
function sharedAddresses({ api, dns, metrics, servicePlane, cluster }: Config, source: Source): ConfigProblem[] {
  const listeners: Listening[] = [
    { path: ['api', 'listen'], at: api.listen },
    ...(servicePlane === null ? [] : [{ path: ['service_plane', 'listen'], at: servicePlane.listen }]),
    ...(dns?.listen ?? []).map((at, index) => ({ path: ['dns', 'listen', index], at })),
    ...(cluster === null ? [] : [{ path: ['cluster', 'peer', 'listen'], at: cluster.peer.listen }]),
    ...(metrics.listen === null ? [] : [{ path: ['metrics', 'listen'], at: metrics.listen }]),
  ];
  return listeners.flatMap(({ path, at }, index) => {
    const former = listeners.slice(0, index).find((other) => cannotBothListen(other.at, at));
    if (former === undefined) return [];
    const { host, port } = former.at;
    const message = `is an address that ${former.path.join('.')} uses (${isIP(host) === 6 ? `[${host}]` : host}:${port})`;
    return [problem('invalid_value', path, message, source)];
  });
}

function etcdContradictions({ cluster }: z.output<typeof configSchema>, source: Source): ConfigProblem[] {
  if (cluster === undefined) return [];
  const { endpoints, tls, user, password_file: passwordFile } = cluster.etcd;
  const isEncrypted = endpoints.map((endpoint) => /^https:/i.test(endpoint));
  const refused = (name: keyof typeof cluster.etcd, message: string): ConfigProblem[] => [
    problem('invalid_value', ['cluster', 'etcd', name], message, source),
  ];
  const ofTls = (): ConfigProblem[] => {
    if (new Set(isEncrypted).size > 1) return refused('endpoints', 'must be all https or all http');
    if (isEncrypted[0] && tls === null) return refused('endpoints', 'must not be https without cluster.etcd.tls');
    if (!isEncrypted[0] && tls !== null) return refused('tls', 'must not be given if cluster.etcd.endpoints are http');
    return [];
  };
  const ofUser = (): ConfigProblem[] => {
    if (user !== null && passwordFile === null)
      return refused('user', 'must not be given without cluster.etcd.password_file');
    if (user === null && passwordFile !== null)
      return refused('password_file', 'must not be given without cluster.etcd.user');
    return [];
  };
  return [...ofTls(), ...ofUser()];
}

const BPF_FILE_SYSTEM = 0xcafe_4a11;

/**
 * Checks that `dataplane.pin_path` is in a BPF file system. A missing folder is not a problem: the BPF file
 * system may be mounted later, before the node starts.
 */
function notPinnable({ dataplane }: Config, source: Source): ConfigProblem[] {
  if (dataplane === null) return [];
  try {
    if (statfsSync(dataplane.pinPath).type === BPF_FILE_SYSTEM) return [];
  } catch {
    return [];
  }
  const message = `${dataplane.pinPath} is not in a BPF file system, such as /sys/fs/bpf`;
  return [problem('invalid_value', ['dataplane', 'pin_path'], message, source)];
}

/**
 * Returns the problems of the files of each `tls` section, for example if the key does not belong to the
 * certificate. Otherwise the node would end at its start, or a listener would be missing.
 */
function unusableFiles({ api, metrics, cluster }: Config, source: Source): ConfigProblem[] {
  return [
    ...unusableTls(['api', 'tls'], api.tls, source),
    ...unusableTls(['metrics', 'tls'], metrics.tls, source),
    ...unusableTls(['cluster', 'etcd', 'tls'], cluster?.etcd.tls ?? null, source),
    ...unusableTls(['cluster', 'peer', 'tls'], cluster?.peer.tls ?? null, source),
  ];
}

type ReadFiles = { readonly cert: string; readonly key: string; readonly ca?: string };

function unusableTls(path: readonly string[], tls: ReadFiles | null, source: Source): ConfigProblem[] {
  if (tls === null) return [];
  const cert = readBoundedSync(tls.cert, MAX_BYTES.certificates);
  const key = readBoundedSync(tls.key, MAX_BYTES.certificates);
  const refused = (name: keyof ReadFiles, message: string) =>
    problem('invalid_value', [...path, name], message, source);
  const problems = [
    ...(tls.ca === undefined || isCertificate(readBoundedSync(tls.ca, MAX_BYTES.certificates))
      ? []
      : [refused('ca', `${tls.ca} contains no certificate in PEM`)]),
    ...(isAccepted({ cert }) ? [] : [refused('cert', `${tls.cert} contains no certificate in PEM`)]),
    ...(isAccepted({ key }) ? [] : [refused('key', `${tls.key} contains no private key in PEM without a passphrase`)]),
  ];
  if (problems.length > 0 || isAccepted({ cert, key })) return problems;
  return [refused('key', `${tls.key} is not the key of the certificate in ${tls.cert}`)];
}

/** Checks a CA certificate, because `createSecureContext` silently ignores one that it cannot read. */
function isCertificate(pem: Buffer): boolean {
  try {
    return new X509Certificate(pem).fingerprint256 !== '';
  } catch {
    return false;
  }
}

function isAccepted(options: SecureContextOptions): boolean {
  try {
    createSecureContext(options);
    return true;
  } catch {
    return false;
  }
}

function missingFiles(config: Config, source: Source): ConfigProblem[] {
  return requiredFiles(config).flatMap(({ key, path }) => {
    try {
      checkBounded(path, MAX_BYTES.certificates);
      return [];
    } catch (cause) {
      const message = cause instanceof Error ? cause.message : String(cause);
      return [problem('file_missing', key.split('.'), message, source)];
    }
  });
}

/**
 * Returns whether two TCP sockets cannot listen at the same time. Port 0 never conflicts, because the kernel
 * chooses a free port. A socket on `::` also receives IPv4. A host name other than `localhost` is treated as
 * an IPv4 address.
 */
function cannotBothListen(one: ListenAddress, other: ListenAddress): boolean {
  if (one.port !== other.port || one.port === 0) return false;
  const others = addressesOf(other.host);
  return addressesOf(one.host).some((address) => others.some((another) => overlap(address, another)));
}

/** A server that listens on `localhost` listens on both loopback addresses. */
function addressesOf(host: string): readonly string[] {
  if (host.toLowerCase() === 'localhost') return ['127.0.0.1', '::1'];
  return [isIP(host) === 6 ? canonicalIpv6(host) : host];
}

/**
 * Returns the shortest form of an IPv6 address. An IPv4-mapped address such as `::ffff:192.0.2.1` becomes an
 * IPv4 address.
 */
function canonicalIpv6(text: string): string {
  const [address = '', zone] = text.split('%');
  const plain = new SocketAddress({ family: 'ipv6', address }).address.replace(/^::ffff:(?=.*\.)/, '');
  return zone === undefined ? plain : `${plain}%${zone}`;
}

function overlap(one: string, other: string): boolean {
  const covers = (any: string, address: string): boolean => any === '::' || (any === '0.0.0.0' && isIP(address) !== 6);
  return one === other || covers(one, other) || covers(other, one);
}
