import type { Logger } from 'pino';
import { z } from 'zod';
import type { ReloadPorts } from '#actors/reload.actor.js';
import type { System } from '#actors/system-contract.js';
import { Refused } from '#bus/refused.js';
import type { Config } from '#config/config.js';
import { ConfigError, withPointer } from '#config/config-problem.js';
import type { RunningConfig } from '#config/reload/running-config.js';
import { RELOAD_PARTS, type ReloadPlan } from '#contracts/config/config-reload.js';
import type { Action } from '#contracts/policy/policy-model.js';
import type { StoredPolicy } from '#contracts/policy/policy-record.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { policedAmong, readPolicedNames } from '#dataplane/attach/interfaces/policed-names.js';
import { Pins } from '#dataplane/attach/pins.js';
import { listed } from '#dataplane/review/listed-names.js';
import { parseAction } from '#policy/model/keywords.js';
import { checkPolicyFiles, type FollowedPolicyFiles, type PolicyFiles } from './policy-file.js';

export type ReloadTargets = {
  readonly running: RunningConfig;
  readonly system: () => System;
  readonly policyFiles: FollowedPolicyFiles;
  settings: ReloadPorts['settings'];
  changeApi(settings: Config['api']): void;
  changeLog(settings: Config['log']): void;
};

/** Returns the files of a configuration whose contents the node writes to its store. */
export const filesOf = ({ policy }: Config): PolicyFiles => ({
  policy: policy.file,
  assertions: policy.assertionsFile,
});

/** Implements the interface of the reload actor with the configuration file and the parts of the node. */
export function reloadPorts({ running, policyFiles, ...targets }: ReloadTargets): ReloadPorts {
  const configOf = (which: 'next' | 'running'): Config => (which === 'next' ? running.next : running.config);
  return {
    read: async ({ allowUnpoliced }) => planOf(running, allowUnpoliced),
    validate: async ({ parts }, { allowUnpoliced, allowOpen }) => {
      if (parts.includes('dataplane') && !allowUnpoliced) refuseToUnpolice(configOf('running'), configOf('next'));
      if (!allowOpen) await refuseToOpen(running.config, running.file, targets.system());
      if (!parts.includes('policy_file')) return;
      const refusal = await checkPolicyFiles(filesOf(running.next), targets.system()).catch((failure: Error) => {
        throw new Refused({ kind: 'refused', code: 'invalid_config', detail: failure.message });
      });
      if (refusal !== null) throw new Refused(refusal);
    },
    settings: targets.settings,
    change: async (part, which) => {
      const { api, log } = configOf(which);
      switch (part) {
        case 'policy_file':
          return policyFiles.follow(filesOf(configOf(which)));
        case 'api':
          return targets.changeApi(api);
        case 'log':
          return targets.changeLog(log);
      }
    },
    commit: () => running.commit(),
  };
}

/**
 * Reloads the configuration. Logs a refusal only if the reload did not begin. A reload that began logs its
 * own failure.
 */
export async function reloadBySighup({ configuration }: Pick<System, 'configuration'>, log: Logger): Promise<void> {
  const before = configuration.lastReload();
  const outcome = await configuration.reload({
    dryRun: false,
    allowUnpoliced: false,
    allowOpen: false,
    author: 'SIGHUP',
  });
  if (outcome.kind === 'refused' && configuration.lastReload() === before)
    log.warn({ code: outcome.code }, `SIGHUP was refused: ${outcome.detail}`);
}

/**
 * Throws a `Refused` error if Weir enforces the policy on an existing interface by `running`, and would not
 * by `next`. This includes an interface that was renamed.
 */
function refuseToUnpolice({ dataplane: running }: Config, { dataplane: next }: Config): void {
  if (running === null) return;
  const all = listInterfaces();
  const names = readPolicedNames(new Pins(running.pinPath).names);
  const kept = new Set(policedAmong(all, next?.interfaces ?? [], names).map(({ ifindex }) => ifindex));
  const released = policedAmong(all, running.interfaces, names).flatMap(({ name, ifindex, renamedFrom }) => {
    if (kept.has(ifindex)) return [];
    return renamedFrom === undefined ? name : `${name} (renamed from ${renamedFrom})`;
  });
  if (released.length === 0) return;
  const detail = `${listed(released)} would no longer be policed: dataplane.interfaces of the file does not contain it`;
  throw new Refused({ kind: 'refused', code: 'would_unpolice', detail });
}

/**
 * Throws a `Refused` error if Weir drops IPv6 by `running`, and after a restart with `file` the default of
 * the policy in force would pass it. That policy has no IPv6 sources, so its default decides all IPv6.
 */
async function refuseToOpen(running: Config, file: Config, { policies }: Pick<System, 'policies'>): Promise<void> {
  if (running.dataplane?.ipv6 !== 'drop' || file.dataplane?.ipv6 !== 'enforce') return;
  const why = whyDefaultPasses(await policies.read({ by: 'active' }), file.policy.fallback);
  if (why === null) return;
  const detail = `all IPv6 would pass after a restart: dataplane.ipv6 of the file is enforce, and ${why}`;
  throw new Refused({ kind: 'refused', code: 'would_open', detail });
}

const withDefault = z.object({ default_policy: z.string().optional() });

/** Returns why the default of the active policy passes packets; null if it denies them. */
function whyDefaultPasses(active: StoredPolicy | null, fallback: Action): string | null {
  if (active === null) return fallback === 'allow' ? 'no policy is active, and policy.fallback is allow' : null;
  const { default_policy: word } = withDefault.parse(JSON.parse(Buffer.from(active.body).toString()));
  if (active.record.mode === 'audit') return 'the policy in force is in the mode audit';
  if (word !== undefined)
    return parseAction(word) === 'allow' ? 'default_policy of the policy in force is allow' : null;
  return fallback === 'allow' ? 'policy.fallback is allow' : null;
}

/**
 * `releases`: the reload detaches from renamed interfaces, even if the list of interfaces in the file is
 * unchanged.
 */
function planOf(running: RunningConfig, releases: boolean): ReloadPlan {
  try {
    const { changed, unchanged } = running.read();
    const pointerOf = (keys: readonly string[]): string => `/${keys.join('/')}`;
    const needsRestart = changed.filter(({ by }) => by === 'restart').map(({ keys }) => pointerOf(keys));
    const applied = changed.filter(({ by }) => by !== 'restart');
    return {
      applied: applied.map(({ keys }) => pointerOf(keys)),
      unchanged: unchanged.map(pointerOf),
      needsRestart,
      parts: RELOAD_PARTS.filter(
        (part) =>
          applied.some(({ by }) => by === part) ||
          (part === 'dataplane' && releases && running.config.dataplane !== null),
      ),
    };
  } catch (failure) {
    if (!(failure instanceof ConfigError)) throw failure;
    const problems = failure.problems.map(withPointer);
    const detail = `the configuration file is not valid: ${failure.message.split('\n')[0]}`;
    throw new Refused({ kind: 'refused', code: 'invalid_config', detail, problems });
  }
}
