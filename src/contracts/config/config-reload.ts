import type { RenamedPolicing } from '#contracts/datapath/renamed-interface.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';

/**
 * The parts of the node that take new settings while they run, in the order in which a reload changes them.
 * `policy_file` is the last part that can refuse, because a policy that it has put in force cannot be
 * reverted. It also has the file with assertions.
 */
export const RELOAD_PARTS = ['dataplane', 'dns', 'service_plane', 'policy_file', 'api', 'log'] as const;
export type ReloadPart = (typeof RELOAD_PARTS)[number];

/**
 * The difference between two configurations. Each entry is the JSON pointer of a field, or of a whole section
 * that only one of the two configurations has.
 */
type ConfigChanges = {
  /** Changed fields that running parts apply. */
  readonly applied: readonly string[];
  readonly unchanged: readonly string[];
  /** Changed fields that take effect at the next start of the node. */
  readonly needsRestart: readonly string[];
};

/** `parts`: the parts that have new settings, in the order of `RELOAD_PARTS`. */
export type ReloadPlan = ConfigChanges & { readonly parts: readonly ReloadPart[] };

/**
 * A request to reload the configuration. `allowUnpoliced`: the reload may end the policing (enforcement of
 * the policy) of an existing interface, and ends it for renamed interfaces. `allowOpen`: the file may begin
 * to enforce IPv6 policies although the policy in force then passes all IPv6. `author`: the subject of the
 * API token, or the name of a signal.
 */
export type ReloadRequest = {
  readonly dryRun: boolean;
  readonly allowUnpoliced: boolean;
  readonly allowOpen: boolean;
  readonly author: string;
};
export type ReloadReport = ConfigChanges & { readonly kind: 'reloaded' };

/**
 * `applied`: all changes are in force, or nothing was to be changed. `refused`: the file or the policy file
 * is not valid, and nothing was changed. `rolled_back`: a part could not apply its settings, and the parts
 * before it have their former settings again. `rollback_failed`: a part did not apply its former settings
 * again.
 */
export const RELOAD_RESULTS = ['applied', 'refused', 'rolled_back', 'rollback_failed'] as const;
export type ReloadResult = (typeof RELOAD_RESULTS)[number];

/**
 * The last reload that was not a dry run. `at`: the end of the reload in ISO 8601, UTC. `detail`: why it
 * failed.
 */
export type LastReload = {
  readonly at: string;
  readonly by: string;
  readonly result: ReloadResult;
  readonly detail: string | null;
  readonly applied: readonly string[];
  readonly needsRestart: readonly string[];
};

/** The names of the policed interfaces, and what happens to policed interfaces that have other names now. */
export type InterfaceSettings = { readonly names: readonly string[]; readonly renamed: RenamedPolicing };

/** The settings that the DNS proxy can change while it runs. */
export type DnsSettings = {
  readonly listen: readonly { readonly host: string; readonly port: number }[];
  readonly upstreams: readonly { readonly host: string; readonly port: number }[];
  /** The order in which the proxy queries the upstreams that respond. */
  readonly upstreamOrder: 'listed' | 'fastest';
  readonly deniedResponse: 'nxdomain' | 'refused';
  readonly minGrantMs: number;
  readonly maxGrantMs: number;
  readonly cacheBytes: number;
  /**
   * The time in milliseconds for which the proxy still serves an expired answer from its cache, if the
   * upstreams return no answer or an error other than NXDOMAIN. With 0, the proxy serves no expired answers.
   */
  readonly serveStaleMs: number;
  readonly rebindProtection: boolean;
  /** Hostname patterns of names that may resolve to non-public addresses. */
  readonly rebindAllow: readonly HostnamePattern[];
  /** Hostname patterns of names that the proxy answers with NXDOMAIN. */
  readonly canaryNames: readonly HostnamePattern[];
};

/** The settings that the service plane (TLS and HTTP inspection) can change while it runs. */
export type ServicePlaneSettings = {
  /** The trusted CA certificates for servers: `system`, or the path of a PEM file. */
  readonly upstreamCa: string;
  /** The reaction to a denied HTTP request: a response with status 403, or a TCP reset. */
  readonly deniedHttp: '403' | 'reset';
  /**
   * The maximum number of inspected connections of one thread. The service plane resets further connections.
   * In audit mode, the same number of further connections passes uninspected.
   */
  readonly maxConnections: number;
  /**
   * The maximum number of inspected connections of one source address in one thread. The service plane
   * handles further connections as for `maxConnections`.
   */
  readonly maxConnectionsPerSource: number;
};
