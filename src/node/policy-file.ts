import type { Logger } from 'pino';
import type { System } from '#actors/system-contract.js';
import { FollowedFile } from '#config/policy/followed-file.js';
import { readAssertionsFile, readPolicyFile } from '#config/policy/policy-file.js';
import type { PolicyText } from '#config/policy/policy-text.js';
import type { Assertion } from '#contracts/analysis/assertion.js';
import type { PolicyTarget, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import type { SupervisedPart } from '#contracts/supervised-part.js';

/** The files whose contents the node writes to its store: `policy.file` and `policy.assertions_file`. */
export type PolicyFiles = { readonly policy: string | null; readonly assertions: string | null };

/**
 * Follows the policy file and the file with assertions, and writes their contents with the same operations as
 * an API client. Does not write what equals the stored contents. The assertions of the file are in force
 * before the policy of the file is checked: each write of the policy first applies the file with assertions.
 */
export class FollowedPolicyFiles implements SupervisedPart {
  readonly #policy: FollowedFile;
  readonly #assertions: FollowedFile;

  constructor(paths: PolicyFiles, ready: Promise<void>, systemOf: () => System, log: Logger) {
    this.#assertions = followAssertions(paths.assertions, ready, systemOf, log);
    this.#policy = followPolicy(paths.policy, ready, systemOf, log, () => this.#assertions.begin());
  }

  async begin(): Promise<void> {
    await this.#assertions.begin();
    await this.#policy.begin();
  }

  watch(listener: (failure: string | null) => void): () => void {
    const failures: { assertions: string | null; policy: string | null } = { assertions: null, policy: null };
    const told = (failed: Partial<typeof failures>): void => {
      Object.assign(failures, failed);
      listener(failures.assertions ?? failures.policy);
    };
    const ends = [
      this.#policy.watch((policy) => told({ policy })),
      this.#assertions.watch((assertions) => {
        if (assertions !== null) return told({ assertions });
        // Write the policy of the file again: the earlier assertions may have refused it.
        this.#policy.begin().then(
          () => told({ assertions, policy: null }),
          (failure: unknown) => told({ assertions, policy: sentenceOf(failure) }),
        );
      }),
    ];
    return () => {
      for (const end of ends) end();
    };
  }

  /** Follows other files from now on. Rejects if one of them cannot be applied. */
  async follow(paths: PolicyFiles): Promise<void> {
    await this.#assertions.follow(paths.assertions);
    await this.#policy.follow(paths.policy);
  }

  close(): void {
    this.#assertions.close();
    this.#policy.close();
  }
}

function followPolicy(
  path: string | null,
  ready: Promise<void>,
  systemOf: () => System,
  log: Logger,
  assertionsApplied: () => Promise<void>,
): FollowedFile {
  const apply = async (text: PolicyText, from: string): Promise<void> => {
    await assertionsApplied();
    const system = systemOf();
    if (await isInForce(system, text)) return;
    const outcome = await system.policies.write(writeOf(text, false));
    if (outcome.kind === 'refused') throw new FileRefused('policy', from, outcome);
    const warnings = outcome.kind === 'written' ? outcome.warnings : [];
    log.info({ path: from, warnings }, 'policy file written');
  };
  return new FollowedFile(path, { read: readPolicyFile, apply, isFinal, failed: failedTo(log) }, ready);
}

function followAssertions(
  path: string | null,
  ready: Promise<void>,
  systemOf: () => System,
  log: Logger,
): FollowedFile {
  const apply = async ({ value }: PolicyText, from: string): Promise<void> => {
    const { assertions: operations } = systemOf();
    const invalid = operations.problemsOf(value);
    if (invalid !== null) throw new FileRefused('assertions', from, invalid);
    const { assertions } = value as { readonly assertions: readonly Assertion[] };
    const stored = await operations.read().catch(() => null);
    if (stored !== null && JSON.stringify(stored.assertions) === JSON.stringify(assertions)) return;
    const author = 'policy.assertions_file';
    const written = await operations.write({ change: () => assertions, author, dryRun: false });
    if (written.kind === 'refused') throw new FileRefused('assertions', from, written);
    log.info({ path: from, revision: written.list.revision }, 'assertions file written');
  };
  return new FollowedFile(path, { read: readAssertionsFile, apply, isFinal, failed: failedTo(log) }, ready);
}

const sentenceOf = (failure: unknown): string => (failure instanceof Error ? failure.message : String(failure));

const isFinal = (failure: unknown): boolean =>
  failure instanceof FileRefused && !REFUSED_FOR_NOW.includes(failure.refusal.code);

const failedTo =
  (log: Logger) =>
  (failure: unknown, from: string): void => {
    if (failure instanceof FileRefused && failure.path === from) {
      const { detail, problems, assertions } = failure.refusal;
      const refused = assertions?.map(({ id, message }) => ({ id, message }));
      log.error(
        { path: from, problems, assertions: refused },
        `the ${failure.what} of the file ${from} ${failure.what === 'policy' ? 'was' : 'were'} not written to the node: ${detail}`,
      );
    } else log.error({ path: from }, sentenceOf(failure));
  };

/**
 * Checks the files of a configuration that is reloaded: the assertions, and the policy by a dry run of its
 * write with these assertions. Returns null if the node would accept both.
 */
export async function checkPolicyFiles(files: PolicyFiles, system: System): Promise<Refusal | null> {
  const assertions = files.assertions === null ? null : await readAssertionsFile(files.assertions);
  if (assertions !== null && files.assertions !== null) {
    const invalid = system.assertions.problemsOf(assertions.value);
    if (invalid !== null) return about('assertions', files.assertions, invalid);
  }
  if (files.policy === null) return null;
  const text = await readPolicyFile(files.policy);
  if (await isInForce(system, text)) return null;
  const list = assertions === null ? {} : { assertions: assertions.value.assertions as readonly Assertion[] };
  const outcome = await system.policies.write({ ...writeOf(text, true), ...list });
  if (outcome.kind === 'refused') return about('policy', files.policy, outcome);
  const refusing = outcome.kind === 'checked' ? outcome.assertions.filter(({ effect }) => effect === 'refuses') : [];
  const [first] = refusing;
  if (first === undefined) return null;
  return about('policy', files.policy, refusal('assertion_failed', `${first.id}: ${first.message}`));
}

function about(what: FileRefused['what'], path: string, { code, detail, problems }: Refusal): Refusal {
  return {
    kind: 'refused',
    code: 'invalid_config',
    detail: `the ${what} file ${path} would be refused (${code}): ${detail}`,
    ...(problems === undefined
      ? {}
      : { problems: problems.map((problem) => ({ ...problem, message: `${path}: ${problem.message}` })) }),
  };
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
 * Codes of refusals with a temporary cause. The node may accept the same text later, so it tries again. With
 * `assertion_failed`, the list of assertions may change without the file.
 */
const REFUSED_FOR_NOW: readonly string[] = [
  'dataplane_unavailable',
  'activation_timeout',
  'assertion_failed',
  'feature_unavailable',
  'store_unavailable',
  'draining',
];

/**
 * The error for a refused file. `/ready` shows its message to everyone, so the message must not quote the
 * file. The log contains the details.
 */
class FileRefused extends Error {
  constructor(
    readonly what: 'policy' | 'assertions',
    readonly path: string,
    readonly refusal: Refusal,
  ) {
    super(`the ${what} file ${path} was refused (${refusal.code}); the log says why`);
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
