import type { Logger } from 'pino';
import type { System } from '#actors/system-contract.js';
import { FollowedPolicyFile, readPolicyFile } from '#config/policy/policy-file.js';
import type { PolicyText } from '#config/policy/policy-text.js';
import type { PolicyTarget, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';

/**
 * Follows a policy file and writes its policy with the same operation as an API client. Does not write a
 * policy that equals the active policy.
 */
export function followPolicyFile(
  path: string | null,
  ready: Promise<void>,
  systemOf: () => System,
  log: Logger,
): FollowedPolicyFile {
  const apply = async (text: PolicyText, from: string): Promise<void> => {
    const system = systemOf();
    if (await isInForce(system, text)) return;
    const outcome = await system.policies.write(writeOf(text, false));
    if (outcome.kind === 'refused') throw new PolicyFileRefused(from, outcome);
    const warnings = outcome.kind === 'written' ? outcome.warnings : [];
    log.info({ path: from, warnings }, 'policy file written');
  };
  const isFinal = (failure: unknown): boolean =>
    failure instanceof PolicyFileRefused && !REFUSED_FOR_NOW.includes(failure.refusal.code);
  const failed = (failure: unknown, from: string): void => {
    if (failure instanceof PolicyFileRefused) {
      const { detail, problems } = failure.refusal;
      log.error({ path: from, problems }, `the policy of the file ${from} was not written to the node: ${detail}`);
    } else log.error({ path: from }, failure instanceof Error ? failure.message : String(failure));
  };
  return new FollowedPolicyFile(path, { apply, isFinal, failed }, ready);
}

/**
 * Checks a policy file by a dry run of its write. Returns null if the node would accept it, or enforces its
 * policy already.
 */
export async function checkPolicyFile(path: string, system: System): Promise<Refusal | null> {
  const text = await readPolicyFile(path);
  if (await isInForce(system, text)) return null;
  const outcome = await system.policies.write(writeOf(text, true));
  return outcome.kind === 'refused' ? outcome : null;
}

function writeOf({ form, json, record }: PolicyText, dryRun: boolean): PolicyWrite {
  return {
    operation: 'put',
    target: form === 'envelope' ? { by: 'name', name: nameIn(json) } : targetOf(record),
    form,
    body: Buffer.from(json),
    ifMatch: undefined,
    ifNoneMatch: undefined,
    activate: true,
    dryRun,
    mayWatch: true,
    author: 'policy.file',
    fromFile: true,
  };
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
