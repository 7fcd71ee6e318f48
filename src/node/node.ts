import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Logger } from 'pino';
import { otherProcessTimeout } from '#actors/other-process-timeout.js';
import { createSystem } from '#actors/system.js';
import type { System } from '#actors/system-contract.js';
import type { Api } from '#api/api.js';
import type { Cluster } from '#cluster/cluster.js';
import type { Config } from '#config/config.js';
import { configWarnings } from '#config/config-warnings.js';
import type { ReadConfig } from '#config/load.js';
import { RunningConfig } from '#config/reload/running-config.js';
import type { MemberList } from '#contracts/kubernetes/membership.js';
import type { BegunDatapath } from '#dataplane/thread/datapath-thread.js';
import { createDnsProxy } from '#dns/thread/dns-thread.js';
import { accessWarnings } from '#kubernetes/api-server/access-check.js';
import { createKubernetesSource } from '#kubernetes/thread/kubernetes-thread.js';
import { releaseMemory } from '#libc/memory-release.js';
import { addressShared, clusterContradiction, valueUnreadable } from '#observe/findings/node-findings.js';
import { LogRing } from '#observe/log/log-ring.js';
import { createWorkMetrics } from '#observe/metrics/work-metrics.js';
import { Observer } from '#observe/observer.js';
import { createPolicyThread } from '#policies/thread/policy-thread.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';
import { interceptCaOver } from '#service-plane/ca/intercept-ca-setting.js';
import { createServicePlane } from '#service-plane/thread/service-plane-threads.js';
import { ListeningSockets } from '#sockets/listening/listening-sockets.js';
import { inheritedDescriptors, serviceManager } from '#sockets/listening/service-manager.js';
import { openStore, type Shared } from '#store/store.js';
import type { KvStore } from '#store/store-types.js';
import { createAuthority } from '#store/tokens/authority.js';
import { listen } from './listen.js';
import { createLog, logFacts, restoreFailureLog } from './log.js';
import { managementOf, timePhase } from './management.js';
import { apiOptions, clusterOpener, dnsOptions, partSettings, servicePlaneOptions } from './options.js';
import { FollowedPolicyFiles } from './policy-file.js';
import { filesOf, reloadBySighup, reloadPorts } from './reload.js';
import { openingStore, reportStart } from './start.js';

const { version } = createRequire(import.meta.url)('weir/package.json') as { version: string };

/**
 * Runs a node as `run` in `main.ts` describes. `datapath` is already being opened; it is null if the
 * configuration has no `dataplane` section.
 */
export async function runNode(
  read: ReadConfig,
  reread: (() => ReadConfig) | null,
  datapath: BegunDatapath | null,
): Promise<number> {
  const { config } = read;
  const running = new RunningConfig(read, reread ?? (() => read));
  const ring = new LogRing();
  const nodeLog = createLog(config, ring);
  const { log } = nodeLog;
  for (const warning of configWarnings(read)) log.warn(warning);
  let giveUp: (failure: Error) => void = () => {};
  const stopped = new Promise<NodeJS.Signals | Error>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => resolve(signal));
    if (reread === null) process.once('SIGHUP', () => resolve('SIGHUP'));
    giveUp = resolve;
  });
  // Called after the start of the node: a SIGHUP that arrived before then reloads the configuration.
  let isUp: (system: System) => void = () => {};
  const up = new Promise<System>((resolve) => {
    isUp = resolve;
  });
  const hungUp = async (): Promise<void> => reloadBySighup(await up, log);
  if (reread !== null) process.on('SIGHUP', hungUp);
  const work = createWorkMetrics();
  const createThread = () => createPolicyThread({ onPerformed: (kind, seconds) => timePhase(work, kind, seconds) });
  // The thread loads its code while the store is opened. Ignore a failure here, because the first task
  // reports it again.
  const writing = createThread();
  writing.begin().catch(() => {});
  const openCluster = await clusterOpener(config, version, log);
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
  const manager = serviceManager(process.env, (failure) =>
    log.warn({ err: failure }, 'the service manager cannot be notified'),
  );
  const endKeepAlive = manager?.keepAlive();
  const sockets = new ListeningSockets(manager, inheritedDescriptors(process.env), (name) =>
    log.info({ socket: name }, 'closed a socket of the previous process that the configuration no longer has'),
  );
  if (config.dns === null) sockets.closeUnused('dns');
  if (config.servicePlane === null) sockets.closeUnused('plane');
  const inspecting = config.servicePlane === null ? null : servicePlaneOptions(config.servicePlane, config.dataplane);
  const members = new MemberRecord();
  const knownMembers = (): MemberList | null => (members.isKnown ? members.list() : null);
  const plane = inspecting === null ? null : createServicePlane(inspecting, sockets, knownMembers);
  plane?.begin();
  const store = await openingStore(config.node.dataDir, manager, log, () =>
    openStore(
      config.node.dataDir,
      ({ code, message }) => log.error({ code }, message),
      (write) => work.storeWrite(write),
      config.cluster?.sealKeyFile ?? null,
      share,
      config.policy.history,
    ),
  ).catch(async (failure: unknown) => {
    await plane?.close();
    throw failure;
  });
  try {
    const authority = await createAuthority(store.tokens, config.node.dataDir, {
      node: config.node.id,
      shared: store.sharedTokens,
    });
    const interceptCa = await interceptCaOver(store.interceptCa, config.node.id);
    const dataplane =
      config.dataplane === null || datapath === null
        ? null
        : {
            datapath,
            interfaces: config.dataplane.interfaces,
            policeLocal: config.dataplane.policeLocal,
            ipv6: config.dataplane.ipv6,
            divertsDns: config.dns?.transparent ?? false,
            reversePath: config.dataplane.reversePath,
            openFailed: otherProcessTimeout(giveUp),
            warned: (warning: string) => log.warn(warning),
            found: datapath.found,
          };
    dataplane?.datapath.watch((change) => {
      if (change.type === 'forwarding_changed')
        log.info({ family: change.family, way: change.way, reason: change.reason }, 'forwarding changed');
      // Log a warning for other changes, such as a lost interface, link or guard. The dataplane repairs the
      // loss itself, but the operator must know about it.
      else log.warn(change, 'dataplane changed');
    });
    // Each change means that a service-plane thread died and was replaced, and that its connections were
    // reset. Warn the operator.
    plane?.watch((change) =>
      log.warn(change, 'a thread of the TLS and HTTP inspection ended and was replaced; its connections were reset'),
    );
    const made: Api[] = [];
    let managementApi: Api | null = null;
    const observer = createObserver(config, log, () => system);
    let isSettled = (): void => {};
    const settled = new Promise<void>((resolve) => {
      isSettled = resolve;
    });
    let apiIsMade = (): void => {};
    const ready = new Promise<void>((resolve) => {
      apiIsMade = resolve;
    });
    const policyFiles = new FollowedPolicyFiles(filesOf(config), ready, () => system, log);
    const reload =
      reread === null
        ? null
        : reloadPorts({
            running,
            system: () => system,
            policyFiles,
            settings: (which) => partSettings(which === 'next' ? running.next : running.config),
            changeApi: ({ maxConnections }) => {
              if (managementApi !== null) managementApi.server.maxConnections = maxConnections;
            },
            changeLog: (settings) => nodeLog.change(settings),
          });
    const system: System = createSystem({
      store,
      dataplane,
      dns: config.dns === null ? null : createDnsProxy(dnsOptions(config.dns, config.dataplane), sockets, knownMembers),
      servicePlane: plane === null ? null : { plane, interceptCa },
      fallback: config.policy.fallback,
      activationTimeoutMs: config.policy.activationTimeoutMs,
      restoreFailed: restoreFailureLog(log),
      cluster,
      nodeId: config.node.id,
      inCluster: config.kubernetes.inCluster,
      kubernetes: {
        source: createKubernetesSource(config.kubernetes),
        accessWarnings: ({ api_server_url: url, ca_cert_pem: caPem, service_account_token: token }) =>
          accessWarnings(url, { caPem, token }),
        record: members,
        trouble: (message, failure) => log.error({ err: failure }, message),
      },
      observer: { begin: () => settled.then(() => observer.begin()), watch: (listener) => observer.watch(listener) },
      seenFlows: () => observer.seenFlows(),
      policyFile: policyFiles,
      reload,
      createThread,
      writing,
    });
    // Start the API and the observer only after the policy is in force. Each needs a CPU for about 100 ms,
    // which would delay the policy, and with it waiting connections and DNS lookups.
    void Promise.race([system.started, pause(SETTLES_WITHIN_MS, undefined, { ref: false }), stopped]).then(isSettled);
    logFacts(system, log);
    observe(system, observer);
    cluster?.contradiction.subscribe((code) => {
      if (code !== null) observer.record(clusterContradiction(code, Date.now()));
    });
    cluster?.unreadable.changes.subscribe(({ key, reason }) => {
      if (reason === null) {
        log.info({ code: 'value_readable', key }, 'a value of etcd can be read again, or is gone');
        return;
      }
      log.warn({ code: 'value_unreadable', key, reason }, 'a value in etcd cannot be read; this node ignores it');
      observer.record(valueUnreadable(key, reason, Date.now()));
    });
    const management = managementOf({
      ...{ version, system, cluster, interceptCa, authority, work, observer, running },
      log: ring,
    });
    try {
      await settled;
      const { createApi } = await import('#api/server.js');
      const api = await createApi(
        management,
        apiOptions(() => running.config.api, version, log),
      );
      made.push(api);
      managementApi = api;
      apiIsMade();
      const stopping = new AbortController();
      void stopped.then(() => stopping.abort());
      let peersListen = Promise.resolve();
      if (cluster !== null && config.cluster !== null) {
        const { peer } = config.cluster;
        const { createPeerListener } = await import('./further-listeners.js');
        const listener = await createPeerListener(management, cluster.certificate, peer, { version, logger: log });
        made.push(listener);
        peersListen = listen(
          { name: 'the peer listener', server: listener, at: peer.listen, sockets: null },
          log,
          stopping.signal,
        );
        // Do not wait for the peer listener here: the API listens first. A later `await` throws its failure.
        peersListen.catch(() => {});
      }
      // Loads the routes, so that clients can connect as soon as the start has ended. Does not wait until the
      // API listens: the node can get the address of the API later, and systemd ends a unit that is not ready
      // in time.
      await api.ready();
      void reportStart(system, manager, log, { isInCluster: cluster !== null });
      const kept = manager === null ? null : sockets;
      const apiListens = listen(
        { name: 'the API', server: api, at: config.api.listen, sockets: kept },
        log,
        stopping.signal,
      );
      // A later `await` of this promise throws its failure.
      apiListens.catch(() => {});
      const { listen: at, tls } = config.metrics;
      if (at !== null) {
        const { openMetricsListener } = await import('./further-listeners.js');
        const opening = { version, log, signal: stopping.signal };
        const listener = await openMetricsListener(management, { at, tls }, opening);
        if (listener !== null) made.push(listener);
      }
      await apiListens;
      const bound = api.server.address() as AddressInfo | null;
      if (bound !== null) {
        const { address, port } = bound;
        log.info({ version, address, port, data_dir: config.node.dataDir }, 'the API listens');
      }
      isUp(system);
      void system.started.then(releaseAfterStart);
      const reason = await peersListen.then(() => stopped);
      if (reason instanceof Error) throw reason;
      log.info({ signal: reason }, 'draining');
      manager?.stopping();
    } finally {
      policyFiles.close();
      management.series.close();
      management.support.close();
      authority.close();
      await system.shutdown();
      await observer.close();
      await Promise.all(made.map(closed));
    }
  } finally {
    await plane?.close();
    await datapath?.close();
    await store.close();
    process.off('SIGHUP', hungUp);
    endKeepAlive?.();
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

/**
 * Returns the memory that only the start needed to the system. This is as much as the node needs afterwards.
 * V8 shrinks the young generation of its heap only if the thread has allocated less than 1,000 bytes a
 * millisecond since the last collection and for five seconds. So the first call collects the garbage, and the
 * second call shrinks the young generation.
 */
async function releaseAfterStart(): Promise<void> {
  for (let release = 0; release < 2; release++) {
    await pause(RELEASE_AFTER_MS, undefined, { ref: false });
    releaseMemory();
  }
}
/**
 * The time in milliseconds after the start before memory is released, because this blocks the main thread for
 * about 80 ms.
 */
const RELEASE_AFTER_MS = 10_000;
/** The maximum time in milliseconds for which the API and the observer wait until the policy is in force. */
const SETTLES_WITHIN_MS = 3_000;

/**
 * Creates the observer before the system exists, because `createSystem` needs the observer. `systemOf` must
 * not be called during this function.
 */
function createObserver(config: Config, log: Logger, systemOf: () => System): Observer {
  const connect = async (): Promise<void> => {
    const system = systemOf();
    system.onEventSource((source) => observer.readEvents(source));
    // If the setting cannot be read, the default applies, and events are sent.
    void system.performanceMode.read().then(
      ({ enabled }) => observer.setRecording(enabled),
      () => {},
    );
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
      flowHistory: config.flowHistory,
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
      owners: () => systemOf().owners.owners(),
      begun: () =>
        queueMicrotask(() => {
          connect().catch((failure: unknown) =>
            log.error({ err: failure }, 'send the hostnames of granted addresses to the observer thread'),
          );
        }),
    },
  );
  return observer;
}

/**
 * Passes the DNS lookups, the inspected connections and the performance mode of the system to the observer.
 * Disconnects wiretap readers when performance mode is disabled.
 */
function observe(system: System, observer: Observer): void {
  system.lookups.seen.subscribe((seen) => observer.see(seen));
  system.owners.ownersChanged.subscribe((changes) => observer.seeOwners(changes));
  system.owners.addressesShared.subscribe((shared) => {
    for (const each of shared) observer.record(addressShared(each, Date.now()));
  });
  system.inspecting.seen.subscribe((seen) => observer.seeConnections(seen));
  system.bus.messages.subscribe((message) => {
    if (message.type !== 'performance_mode.changed') return;
    observer.setRecording(message.mode.enabled);
    if (!message.mode.enabled) observer.endReaders('performance_mode_disabled');
  });
}
