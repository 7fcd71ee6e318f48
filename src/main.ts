import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';
import { givingUpToOther } from '#actors/other-process.js';
import { createSystem, type System } from '#actors/system.js';
import type { Api } from '#api/api.js';
import { createApi } from '#api/server.js';
import type { PolicyTarget, Refusal } from '#bus/policy-requests.js';
import type { Cluster } from '#cluster/cluster.js';
import type { Config } from '#config/config.js';
import type { DisclosedConfig } from '#config/disclosure.js';
import { FollowedPolicyFile } from '#config/policy-file.js';
import type { PolicyText } from '#config/policy-text.js';
import type { ListenAddress } from '#config/value.js';
import type { Missing } from '#contracts/datapath.js';
import { type DataplaneStatus, dataplaneStatus, type StatusOptions } from '#dataplane/status/dataplane-status.js';
import { type DatapathOptions, DEFAULT_TIMEOUTS_MS, openDatapath } from '#dataplane/thread/datapath-thread.js';
import { type Detached, detach } from '#dataplane/thread/detach.js';
import { createDnsProxy } from '#dns/dns-thread.js';
import { clusterContradiction } from '#observe/findings/cluster-contradiction.js';
import { LogRing } from '#observe/log-ring.js';
import { Observer } from '#observe/observer.js';
import { redacted } from '#observe/redaction.js';
import { createWorkMetrics } from '#observe/work-metrics.js';
import { createPolicyThread } from '#policy-thread/policy-thread.js';
import { interceptCaOver } from '#requests/intercept-ca.js';
import { createServicePlane } from '#service-plane/service-plane-threads.js';
import { listenOnceThere } from '#sockets/address-changes.js';
import { createAuthority } from '#store/authority.js';
import { openStore, type Shared } from '#store/store.js';
import type { KvStore } from '#store/store-types.js';
import { managementOf, timePhase } from './node-management.js';
import { apiOptions, clusterOpener, dnsOptions, servicePlaneOptions } from './node-options.js';
import { createPeerListener } from './peer-listener.js';

export type { DataplaneStatus } from '#dataplane/status/dataplane-status.js';

const { version } = createRequire(import.meta.url)('weir/package.json') as { version: string };

/**
 * Runs a node until SIGTERM, SIGINT or SIGHUP: opens the store, starts the dataplane and serves the API.
 * Resolves with the exit code after draining; the datapath stays attached and enforces the policy (D20).
 * Throws if the node cannot start, or if another process has the datapath. `disclosed` is the configuration
 * as a support dump may show it.
 */
export async function run(config: Config, disclosed: DisclosedConfig): Promise<number> {
  const ring = new LogRing();
  const log = createLog(config, ring);
  let giveUp: (failure: Error) => void = () => {};
  const stopped = new Promise<NodeJS.Signals | Error>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => resolve(signal));
    giveUp = resolve;
  });
  const work = createWorkMetrics();
  const openCluster = clusterOpener(config, version, log);
  let cluster = null as Cluster | null;
  const share = (kv: KvStore): Shared | null => {
    if (openCluster === null) return null;
    cluster = openCluster(kv);
    return {
      store: cluster.store,
      commits: cluster.commits,
      kv: cluster.kv,
      seals: config.cluster?.sealKeyFile != null,
    };
  };
  const store = await openStore(
    config.node.dataDir,
    ({ code, message }) => log.error({ code }, message),
    (write) => work.storeWrite(write),
    config.cluster?.sealKeyFile ?? null,
    share,
  );
  try {
    const authority = await createAuthority(store.tokens, config.node.dataDir, {
      cluster: store.sharedTokens === null ? null : { tokens: store.sharedTokens, node: config.node.id },
    });
    const interceptCa = await interceptCaOver(store.interceptCa, config.node.id);
    const inspecting = config.servicePlane === null ? null : servicePlaneOptions(config.servicePlane, config.dataplane);
    const dataplane =
      config.dataplane === null
        ? null
        : {
            datapath: openDatapath({
              ...config.dataplane,
              divertDns: config.dns?.transparent ?? false,
              servicePlane: inspecting?.listen ?? null,
              bootGuard: { path: bootFileIn(config.node.dataDir), isOpen: config.policy.fallback === 'allow' },
            }),
            interfaces: config.dataplane.interfaces,
            policeLocal: config.dataplane.policeLocal,
            divertsDns: config.dns?.transparent ?? false,
            reversePath: config.dataplane.reversePath,
            openFailed: givingUpToOther(giveUp),
          };
    dataplane?.datapath.watch((change) => {
      if (change.type === 'forwarding_changed')
        log.info({ way: change.way, reason: change.reason }, 'forwarding changed');
      // Log a warning for other changes, such as a lost interface, link or guard. The dataplane repairs the
      // loss itself, but the operator must know about it.
      else log.warn(change, 'dataplane changed');
    });
    const plane = inspecting === null ? null : createServicePlane(inspecting);
    // Each change means that a service-plane thread died and was replaced, and that its connections were
    // reset. Warn the operator.
    plane?.watch((change) => log.warn(change, 'service plane changed'));
    const observer = createObserver(config, log, () => system);
    let apiIsMade = (): void => {};
    const ready = new Promise<void>((resolve) => {
      apiIsMade = resolve;
    });
    const policyFile = config.policy.file === null ? null : follow(config.policy.file, ready, () => system, log);
    const system: System = createSystem({
      store,
      dataplane,
      dns: config.dns === null ? null : createDnsProxy(dnsOptions(config.dns, config.dataplane)),
      servicePlane: plane === null ? null : { plane, interceptCa },
      fallback: config.policy.fallback,
      activationTimeoutMs: config.policy.activationTimeoutMs,
      cluster,
      nodeId: config.node.id,
      observer,
      policyFile,
      createThread: () => createPolicyThread({ onPerformed: (kind, seconds) => timePhase(work, kind, seconds) }),
    });
    logFacts(system, log);
    observe(system, observer);
    cluster?.contradiction.subscribe((code) => {
      if (code !== null) observer.record(clusterContradiction(code, Date.now()));
    });
    const management = managementOf({
      ...{ version, system, cluster, interceptCa, authority, work, observer, config, disclosed },
      log: ring,
    });
    const made: Api[] = [];
    try {
      const api = await createApi(management, apiOptions(config, version, log));
      made.push(api);
      apiIsMade();
      const stopping = new AbortController();
      void stopped.then(() => stopping.abort());
      const listen = (name: string, server: Api, { host, port }: ListenAddress): Promise<void> =>
        listenOnceThere(
          () => server.listen({ host, port }),
          ({ message }) => log.warn({ host }, `${name} cannot listen until the node has this address: ${message}`),
          stopping.signal,
        );
      let peersListen = Promise.resolve();
      if (cluster !== null && config.cluster !== null) {
        const { peer } = config.cluster;
        const listener = await createPeerListener(management, cluster.certificate, peer, { version, logger: log });
        made.push(listener);
        peersListen = listen('the peer listener', listener, peer.listen);
        // The API listens first. A failure is thrown by the later `await`.
        peersListen.catch(() => {});
      }
      await listen('the API', api, config.api.listen);
      const bound = api.server.address() as AddressInfo | null;
      if (bound !== null) {
        const { address, port } = bound;
        log.info({ version, address, port, data_dir: config.node.dataDir }, 'the API listens');
      }
      const reason = await peersListen.then(() => stopped);
      if (reason instanceof Error) throw reason;
      log.info({ signal: reason }, 'draining');
    } finally {
      policyFile?.close();
      management.support.close();
      authority.close();
      await system.shutdown();
      await observer.close();
      await Promise.all(made.map(closed));
    }
  } finally {
    await store.close();
  }
  log.info(config.dataplane === null ? 'stopped' : 'stopped; the kernel continues to enforce the last policy');
  return 0;
}

/**
 * Closes the API. After `GOODBYE_MS` milliseconds, destroys the connections that remain, so that a client
 * that does not read its response cannot keep the process from ending.
 */
async function closed(api: Api): Promise<void> {
  const late = setTimeout(() => api.server.closeAllConnections(), GOODBYE_MS);
  await api.close();
  clearTimeout(late);
}
const GOODBYE_MS = 5_000;

/** Returns the requirements of the dataplane that this machine does not meet. */
export async function missingForDataplane(): Promise<readonly Missing[]> {
  const datapath = openDatapath({ ...PROBE_OPTIONS });
  try {
    return await datapath.probe();
  } finally {
    await datapath.close();
  }
}

/**
 * Removes the BPF programs, the pinned maps, the guard (Weir's nftables rules) and the routing rule from the
 * kernel, and empties the boot file of the guard in the data folder. Afterwards no policy is enforced on this
 * machine (D20).
 */
export function detachDataplane(place: { readonly pinPath: string; readonly dataDir?: string }): Detached {
  return detach(place.pinPath, place.dataDir === undefined ? undefined : bootFileIn(place.dataDir));
}

/** Returns the path of the file with the commands of the guard, which a systemd unit loads at boot. */
function bootFileIn(dataDir: string): string {
  return join(dataDir, 'guard.nft');
}

/**
 * Returns the state of the datapath in the kernel: hooks, maps, counters and the policy in force. Works with
 * and without a running node.
 */
export function readDataplaneStatus(options: StatusOptions): DataplaneStatus {
  return dataplaneStatus(options);
}

const PROBE_OPTIONS: DatapathOptions = {
  interfaces: [],
  nonIpv4: 'drop',
  reversePath: 'strict',
  pickupMs: 0,
  flowCapacity: 1,
  flowShare: 1,
  programCapacity: 1,
  timeoutsMs: DEFAULT_TIMEOUTS_MS,
  policeLocal: false,
  forwarding: 'stack',
  grantCapacity: 1,
  markMask: 0x00f0_0000,
  pinPath: '/sys/fs/bpf/weir',
};

function createLog({ log: { level, format }, node }: Config, ring: LogRing): Logger {
  const out = format === 'pretty' ? pretty({ sync: true }) : pino.destination({ dest: 1, sync: true });
  const streams = [out, ring].map((stream) => ({ level: 'trace' as const, stream }));
  return pino({ level, base: { node: node.id }, hooks: { streamWrite: redacted } }, pino.multistream(streams));
}

function logFacts(system: System, log: Logger): void {
  system.bus.messages.subscribe((message) => {
    switch (message.type) {
      case 'policy.activated':
        log.info(
          { generation: message.generation, policy: message.record?.id ?? null },
          message.record === null ? 'no policy is active: policy.fallback decides' : 'policy in force',
        );
        break;
      case 'policy.change_ended': {
        const { generation, outcome, reason } = message;
        if (outcome === 'complete') log.info({ generation, reason }, 'policy change completed');
        else log.warn({ generation, reason }, 'policy change reverted');
        break;
      }
      case 'dataplane.enforcing':
        log.info({ generation: message.generation, epoch: message.epoch }, 'dataplane enforcing');
        break;
      case 'dataplane.lost':
        log.error({ reason: message.reason }, 'dataplane lost');
        break;
      case 'program.proved':
        log.info({ generation: message.generation, ...message.proof }, 'program proved');
        break;
      case 'program.disproved':
        log.error({ generation: message.generation, reason: message.detail }, 'program disproved');
        break;
      case 'program.rejected':
        log.error({ generation: message.generation, reason: message.refusal.detail }, 'program rejected');
        break;
      default:
    }
  });
}

/**
 * Creates the observer before the system exists, because `createSystem` needs the observer. `systemOf` must
 * not be called during this function.
 */
function createObserver(config: Config, log: Logger, systemOf: () => System): Observer {
  const connect = async (): Promise<void> => {
    const system = systemOf();
    system.takeEvents((source) => observer.readEvents(source));
    // Send the observer the names whose addresses were granted before the observer started. Without a DNS
    // proxy, `names` returns a refusal.
    const names = await system.lookups.names();
    if ('kind' in names) return;
    const named = names.flatMap(({ hostname, addresses }) => addresses.map((address) => ({ address, hostname })));
    observer.see({ lookups: [], rebindings: [], named, lost: 0, lostDenied: 0 });
  };
  const observer = new Observer(
    {
      dataDir: config.node.dataDir,
      nodeId: config.node.id,
      findings: config.findings,
      replayMs: config.wiretap.replayMs,
    },
    {
      wanted: ({ flows, lookups, connections }) => {
        const system = systemOf();
        void system.setFlowsWanted(flows);
        system.lookups.setWanted(lookups);
        system.inspecting.setWanted(connections);
      },
      trouble: (code, message) => log.error({ code }, message),
      relief: (code, message) => log.info({ code }, message),
      begun: () =>
        queueMicrotask(() => {
          connect().catch((failure: unknown) => log.error({ err: failure }, 'read the granted names for the observer'));
        }),
    },
  );
  return observer;
}

/**
 * Passes the DNS lookups and inspected connections of the system to the observer. Disconnects wiretap
 * readers when performance mode is disabled.
 */
function observe(system: System, observer: Observer): void {
  system.lookups.seen.subscribe((seen) => observer.see(seen));
  system.inspecting.seen.subscribe((seen) => observer.seeConnections(seen));
  system.bus.messages.subscribe((message) => {
    if (message.type === 'performance_mode.changed' && !message.mode.enabled) {
      observer.endReaders('performance_mode_disabled');
    }
  });
}

/**
 * Follows a policy file and writes its policy with the same operation as an API client. Does not write a
 * policy that equals the active policy.
 */
function follow(path: string, ready: Promise<void>, systemOf: () => System, log: Logger): FollowedPolicyFile {
  const take = async ({ form, json, record }: PolicyText): Promise<void> => {
    const system = systemOf();
    if (await isInForce(system, { form, json })) return;
    const outcome = await system.policies.write({
      operation: 'put',
      target: form === 'envelope' ? { by: 'name', name: nameIn(json) } : targetOf(record),
      form,
      body: Buffer.from(json),
      ifMatch: undefined,
      ifNoneMatch: undefined,
      activate: true,
      dryRun: false,
      author: 'policy.file',
    });
    if (outcome.kind === 'refused') throw new PolicyFileRefused(path, outcome);
    const warnings = outcome.kind === 'written' ? outcome.warnings : [];
    log.info({ path, warnings }, 'policy file written');
  };
  const isFinal = (failure: unknown): boolean =>
    failure instanceof PolicyFileRefused && !REFUSED_FOR_NOW.includes(failure.refusal.code);
  const failed = (failure: unknown): void => {
    if (failure instanceof PolicyFileRefused) {
      const { detail, problems } = failure.refusal;
      log.error({ path, problems }, `the policy file ${path} was not written: ${detail}`);
    } else log.error({ path }, failure instanceof Error ? failure.message : String(failure));
  };
  return new FollowedPolicyFile(path, { take, isFinal, failed }, ready);
}

/**
 * Codes of refusals with a temporary cause. The node may accept the same text later, so it tries again to
 * write the policy.
 */
const REFUSED_FOR_NOW: readonly string[] = [
  'dataplane_unavailable',
  'activation_timeout',
  'feature_unavailable',
  'store_unavailable',
  'draining',
];

/**
 * The error for a refused policy file. `/ready` shows its message to everyone, so the message must not quote
 * the policy. The log contains the details.
 */
class PolicyFileRefused extends Error {
  constructor(
    path: string,
    readonly refusal: Refusal,
  ) {
    super(`the policy file ${path} was refused (${refusal.code}); the log says why`);
  }
}

async function isInForce(system: System, { form, json }: Pick<PolicyText, 'form' | 'json'>): Promise<boolean> {
  const active = await system.policies.read({ by: 'active' });
  if (active === null || active.record.form !== form) return false;
  const wanted = JSON.parse(json) as { mode?: unknown; policy?: unknown };
  const sameMode = form === 'singleton' || wanted.mode === active.record.mode;
  const policy = form === 'singleton' ? wanted : wanted.policy;
  return sameMode && JSON.stringify(policy) === JSON.stringify(JSON.parse(Buffer.from(active.body).toString('utf8')));
}

function targetOf(record: PolicyText['record']): PolicyTarget {
  if (record === null) return { by: 'active' };
  return 'name' in record ? { by: 'name', name: record.name } : { by: 'id', id: record.id };
}

function nameIn(json: string): string {
  const { name } = JSON.parse(json) as { name?: unknown };
  return typeof name === 'string' ? name : 'policy.file';
}
