import { join } from 'node:path';
import type { Config } from '#config/config.js';
import type { ReadConfig } from '#config/load.js';
import type { AnalysisAnswer, AnalysisQuestion } from '#contracts/analysis/analysis.js';
import type { MachineCheck, Missing } from '#contracts/datapath/datapath.js';
import type { Form } from '#contracts/policy/policy-document.js';
import type { Action } from '#contracts/policy/policy-model.js';
import type { Problem } from '#contracts/policy/policy-problem.js';
import type { DataplaneStatus, StatusOptions } from '#dataplane/status/dataplane-status.js';
import {
  type BegunDatapath,
  type DatapathOptions,
  DEFAULT_TIMEOUTS_MS,
  openDatapath,
} from '#dataplane/thread/datapath-thread.js';
import type { Detached } from '#dataplane/thread/detach.js';
import { mapLargeBlocks } from '#libc/memory-release.js';
import { servicePlaneOptions } from '#node/options.js';

export type { MachineCheck } from '#contracts/datapath/datapath.js';
export type { DataplaneStatus } from '#dataplane/status/dataplane-status.js';

/**
 * Runs a node until SIGTERM or SIGINT: opens the store, starts the dataplane and serves the API. Resolves
 * with the exit code after draining; the datapath stays attached and enforces the policy (D20). Throws if
 * the node cannot start, or if another process has the datapath. SIGHUP reloads the configuration that
 * `reread` returns; if `reread` is null, SIGHUP ends the node too.
 */
export async function run(read: ReadConfig, reread: (() => ReadConfig) | null = null): Promise<number> {
  mapLargeBlocks();
  silenceWarningOfEd25519();
  // Opening the datapath takes longest, so its thread starts before this thread loads the other code.
  const datapath = beginDatapath(read.config);
  try {
    const { runNode } = await import('#node/node.js');
    return await runNode(read, reread, datapath);
  } finally {
    await datapath?.close();
  }
}

/**
 * Suppresses a warning of Node.js 20.19.2 (Debian 13) at the first use of a token: that Ed25519 in Web
 * Crypto is experimental. Without this, each start would log the warning. Later versions of Node.js do not
 * warn.
 */
function silenceWarningOfEd25519(): void {
  const emit = process.emitWarning.bind(process) as (warning: string | Error, ...rest: unknown[]) => void;
  process.emitWarning = (warning: string | Error, ...rest: unknown[]) => {
    if (!String(warning).startsWith('The Ed25519 Web Crypto API algorithm')) emit(warning, ...rest);
  };
}

function beginDatapath(config: Config): BegunDatapath | null {
  const options = datapathOptions(config);
  if (options === null) return null;
  const { node, policy } = config;
  const isOpen = policy.fallback === 'allow';
  const bootGuard = { path: bootFileIn(node.dataDir), isOpen };
  const datapath = openDatapath({ ...options, bootGuard, passWithoutPolicy: isOpen });
  datapath.begin();
  return datapath;
}

/** Null if the configuration has no section `dataplane`. */
function datapathOptions({ dataplane, dns, metrics, servicePlane }: Config): DatapathOptions | null {
  if (dataplane === null) return null;
  return {
    ...dataplane,
    divertDns: dns?.transparent ?? false,
    countedGroups: metrics.sourceGroups,
    servicePlane: servicePlane === null ? null : servicePlaneOptions(servicePlane, dataplane).listen,
  };
}

/**
 * Returns the reasons why this machine cannot enforce a configuration: missing features, interfaces that do
 * not exist, and faults of interfaces and of NAT rules. Loads the BPF programs to test whether the kernel
 * accepts them, and changes nothing. The units of the guard (nftables rules of Weir) are not checked, because
 * they are enabled later.
 */
export async function checkMachine(config: Config): Promise<MachineCheck> {
  const options = datapathOptions(config);
  if (options === null) return { missing: [], faults: [], warnings: [] };
  const datapath = openDatapath(options);
  try {
    return await datapath.check();
  } finally {
    await datapath.close();
  }
}

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
 * Returns the problems of a policy document. Does not find problems that depend on the integrations, keys or
 * configuration of a node, such as IPv6 addresses for a node without IPv6 policies. `json` is the body of a
 * write in this form.
 */
export async function documentProblems(form: Form, json: string): Promise<readonly Problem[]> {
  const { parseStrictJson } = await import('#policy/document/json.js');
  const { validateEnvelope, validatePolicy } = await import('#policy/check/validation/validate.js');
  const read = parseStrictJson(json);
  if (!read.ok) return read.problems;
  const validate = form === 'envelope' ? validateEnvelope : validatePolicy;
  return validate(read.value, { form, integrations: undefined, parseCertificate: () => undefined, ipv6: true });
}

/**
 * Answers a question about policies without a node, in a thread of its own. `policies` are bodies of writes.
 * `fallback`: the action for flows if a policy has no `default_policy`. `ipv6`: whether the answer is about
 * IPv6 flows too. It is in any case if a policy has IPv6 addresses, because only nodes that enforce IPv6
 * policies accept it.
 */
export async function analyseDocument(
  policies: readonly { readonly form: Form; readonly json: string }[],
  question: AnalysisQuestion,
  { fallback, ipv6 = false }: { readonly fallback: Action; readonly ipv6?: boolean },
): Promise<AnalysisAnswer> {
  const { createPolicyThread } = await import('#policies/thread/policy-thread.js');
  const thread = createPolicyThread();
  try {
    const texts = policies.map(({ form, json }) => ({
      key: null,
      text: { body: Buffer.from(json), form, recordMode: 'enforce' as const },
    }));
    const surroundings = { fallback, dns: true, servicePlane: true, policesNode: false };
    const perform = (enforcesIpv6: boolean) =>
      thread.perform({
        kind: 'analyse',
        policies: texts,
        surroundings: { ...surroundings, ipv6: enforcesIpv6 },
        question,
      });
    const first = await perform(ipv6);
    const hasIpv6 = first.kind === 'unreadable' && first.problems.some(({ code }) => code === 'ipv6_not_enabled');
    const result = hasIpv6 ? await perform(true) : first;
    if (result.kind === 'analysed') return result.answer;
    throw new Error('analyse a policy: the policy is not valid');
  } finally {
    await thread.close();
  }
}

/**
 * Removes the BPF programs, the pinned maps, the guard (Weir's nftables rules) and the routing rule from the
 * kernel, and empties the boot file of the guard in the data folder. Afterwards no policy is enforced on
 * this machine (D20).
 */
export async function detachDataplane(place: {
  readonly pinPath: string;
  readonly dataDir?: string;
}): Promise<Detached> {
  const { detach } = await import('#dataplane/thread/detach.js');
  return detach(place.pinPath, place.dataDir === undefined ? undefined : bootFileIn(place.dataDir));
}

/**
 * Returns the path of the file with the commands of the guard (nftables rules of Weir), which a systemd unit
 * loads at boot.
 */
function bootFileIn(dataDir: string): string {
  return join(dataDir, 'guard.nft');
}

/**
 * Returns the state of the datapath in the kernel: hooks, maps, counters and the policy in force. Works with
 * and without a running node.
 */
export async function readDataplaneStatus(options: StatusOptions): Promise<DataplaneStatus> {
  const { dataplaneStatus } = await import('#dataplane/status/dataplane-status.js');
  return dataplaneStatus(options);
}

const PROBE_OPTIONS: DatapathOptions = {
  interfaces: [],
  ipv6: 'drop',
  routerPorts: [],
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
