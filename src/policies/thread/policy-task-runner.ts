import { analyse } from '#analysis/analyse.js';
import { checkedWrite } from '#analysis/checked-write.js';
import type { Needs } from '#bus/bus-messages.js';
import { type ListedMembership, NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Policy } from '#contracts/policy/policy-model.js';
import type { ChangeSize } from '#contracts/policy/revision.js';
import { changeSize, measuredParts, measuredText } from '#policy/check/change-size.js';
import { deleteGroup, type GroupWriteContext, type ParsedPolicy, putGroup } from '#policy/check/group-write.js';
import { type GroupPart, inEvaluationOrder, type PolicyParts, policyOf } from '#policy/check/policy-parts.js';
import { ContainingGroups } from '#policy/check/shadow/containing-groups.js';
import { lintMembers } from '#policy/check/warnings/selector-lint.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { factsOfGroups } from '#policy/evaluate/rule-facts.js';
import { explain } from '#policy/explain/explain.js';
import { listing } from '#policy/explain/listing.js';
import { CompileTooLarge } from '#policy/model/budget.js';
import { membershipOf } from '#policy/model/sources/group-sets.js';
import { proofMemories, samplesOf } from '#policy/proof/proof-sample.js';
import { PolicyWriter } from '#service-plane/policy-image.js';
import { LatestFew } from './latest-few.js';
import type {
  AnalysePolicies,
  CheckAssertions,
  DescribePolicy,
  ExplainPolicy,
  Inspected,
  KnownPolicy,
  LocateGroup,
  MeasurePolicy,
  PolicyResult,
  PolicySurroundings,
  PolicyWork,
  Prepared,
  PrepareGroup,
  PreparePolicy,
  PrepareStored,
  PrepareWithMembers,
  TooLarge,
  Unreadable,
} from './policy-work.js';
import { nodeOf, parseCertificate, readText } from './read-text.js';
import { inRecord } from './stored-text.js';

const KEPT_POLICIES = 2;
/** The text size in bytes, about 40,000 rules, from which the cache keeps only one policy. */
const LARGE_TEXT_BYTES = 4 * 1024 * 1024;
const MAX_WAITING = 4;

/**
 * Returns the function that executes the tasks of a policy thread. The function caches the last
 * `KEPT_POLICIES` explained policies, and the last `KEPT_POLICIES` policies parsed for a write. A large
 * policy replaces all other parsed policies. For any other policy, a task must include the policy text.
 */
export function createPolicyTaskRunner(): <W extends PolicyWork>(work: W) => PolicyResult<W> {
  const runner = new PolicyTaskRunner();
  const perform = (work: PolicyWork): PolicyResult<PolicyWork> => {
    switch (work.kind) {
      case 'prepare':
        return runner.prepare(work);
      case 'prepare_group':
        return runner.prepareGroup(work);
      case 'prepare_stored':
        return runner.prepareStored(work);
      case 'prepare_with_members':
        return runner.prepareWithMembers(work);
      case 'measure':
        return runner.measure(work);
      case 'locate_group':
        return runner.locateGroup(work);
      case 'explain':
        return runner.explain(work);
      case 'analyse':
        return runner.analyse(work);
      case 'check_assertions':
        return runner.checkAssertions(work);
      case 'describe':
        return runner.describe(work);
    }
  };
  return perform as <W extends PolicyWork>(work: W) => PolicyResult<W>;
}

class PolicyTaskRunner {
  readonly #explained = new LatestFew<Policy>(KEPT_POLICIES);
  readonly #parsed = new LatestFew<ParsedPolicy>(KEPT_POLICIES);
  /** The last former policy with which an assertion compared. */
  readonly #former = new LatestFew<Policy>(1);
  readonly #memory = new CompileMemory();
  readonly #proofs = proofMemories();
  readonly #containingGroups = new ContainingGroups();
  readonly #writer = new PolicyWriter();
  /** The tasks that wait for the members (addresses) of selectors, by their id. */
  readonly #waiting = new Map<number, Finish>();
  /**
   * The id of the last waiting task. The ids begin at a random number, so that the id of a task of an
   * earlier thread matches no task of this thread.
   */
  #lastWaiting = Math.floor(Math.random() * 2 ** 40);

  prepare(work: PreparePolicy): PolicyResult<PreparePolicy> {
    const { text, surroundings, integrations } = work;
    const read = readText(text, surroundings, integrations, {
      containingGroups: this.#containingGroups,
      isStored: integrations === null,
    });
    if (!read.ok) return { kind: 'unreadable', code: read.code, problems: read.problems };
    const { policyJson, name, warnings, policy, parsed } = read;
    const size = work.before === undefined ? null : this.#size(work.before, parsed);
    // Two large policies would need twice the memory, because they share no data.
    if (text.body.byteLength > LARGE_TEXT_BYTES) this.#parsed.keepOnly(work.key, parsed, work.inForce);
    else this.#parsed.keep(work.key, parsed);
    const base = text.form === 'envelope' ? '/policy' : '';
    return this.#withMembers(policy, work, (membership) => {
      const groups = parsed.parts.groups.map(({ group }) => group);
      const more = lintMembers(groups, membership).map((warning) => ({ ...warning, pointer: base + warning.pointer }));
      const prepared = this.#prepared(parsed.parts, policy, work, membership);
      if ('kind' in prepared) return prepared;
      return { kind: 'prepared', policyJson, name, size, warnings: [...warnings, ...more], ...prepared };
    });
  }

  prepareGroup(work: PrepareGroup): PolicyResult<PrepareGroup> {
    const parsed = this.#parsedPolicy(work.base, work.surroundings);
    if (parsed === undefined) return { kind: 'unknown' };
    if ('kind' in parsed) return parsed;
    const { surroundings, integrations, group, body } = work;
    const context: GroupWriteContext = {
      ...surroundings,
      ...nodeOf(surroundings),
      integrations: new Set(integrations),
      parseCertificate,
      containingGroups: this.#containingGroups,
    };
    const write = body === null ? deleteGroup(parsed, group, context) : putGroup(parsed, group, body, context);
    if (write === null) return { kind: 'no_such_group' };
    if (!write.ok) return { kind: 'unreadable', code: write.code, problems: write.problems };
    this.#parsed.keep(work.key, write.parsed);
    const { parsed: after, policy, created, edit, groupJson } = write;
    const size = changeSize(measuredParts(parsed.parts), measuredParts(after.parts));
    return this.#withMembers(policy, work, (membership) => {
      const written = policy.groups.filter(({ id }) => id === group).map((own) => ({ ...own, pointer: '' }));
      const warnings = [...write.warnings, ...lintMembers(written, membership)];
      const prepared = this.#prepared(after.parts, policy, work, membership);
      if ('kind' in prepared) return prepared;
      return {
        kind: 'prepared_group',
        created,
        edit,
        groupJson: groupJson ?? new Uint8Array(0),
        size,
        warnings,
        ...prepared,
      };
    });
  }

  prepareStored({ key, surroundings }: PrepareStored): PolicyResult<PrepareStored> {
    const parsed = this.#parsed.get(key);
    if (parsed === undefined) return { kind: 'unknown' };
    const work = { compile: true, surroundings };
    const policy = policyOf(parsed.parts, surroundings.fallback);
    return this.#withMembers(policy, work, (membership) => {
      const prepared = this.#prepared(parsed.parts, policy, work, membership);
      return 'kind' in prepared ? prepared : { kind: 'prepared_stored', ...prepared };
    });
  }

  prepareWithMembers({ id, membership }: PrepareWithMembers): PolicyResult<PrepareWithMembers> {
    const finish = this.#waiting.get(id);
    if (finish === undefined)
      throw new Error(
        'compile a policy with the addresses that Kubernetes selectors select: this compilation has already ended',
      );
    this.#waiting.delete(id);
    return finish(membership);
  }

  /**
   * Ends a task at once if it needs no members (addresses of selectors); otherwise `prepareWithMembers` ends
   * it.
   */
  #withMembers<R extends PolicyResult<PrepareWithMembers>>(
    { groups }: Policy,
    work: Pick<PreparePolicy, 'compile'>,
    finish: (membership: ListedMembership) => R,
  ) {
    const selectors = groups.flatMap((group) => group.selectors);
    if (!work.compile || selectors.length === 0) return finish(NOTHING_LISTED);
    // Drop the oldest waiting tasks: the task of a client that disconnected is never ended.
    for (const id of this.#waiting.keys()) if (this.#waiting.size >= MAX_WAITING) this.#waiting.delete(id);
    this.#waiting.set(++this.#lastWaiting, finish);
    return { kind: 'needs_members', id: this.#lastWaiting, selectors } as const;
  }

  measure({ key, before }: MeasurePolicy): PolicyResult<MeasurePolicy> {
    const parsed = this.#parsed.get(key);
    const former = measuredText(before.body, before.form, before.recordMode);
    if (parsed === undefined || former === null) return { kind: 'measured', size: null };
    return { kind: 'measured', size: changeSize(former, measuredParts(parsed.parts)) };
  }

  /** Returns the size of a policy change; null if the cache does not contain the earlier revision. */
  #size(before: string | null, { parts }: ParsedPolicy): ChangeSize | null {
    if (before === null) return changeSize(null, measuredParts(parts));
    const former = this.#parsed.get(before);
    return former === undefined ? null : changeSize(measuredParts(former.parts), measuredParts(parts));
  }

  locateGroup(work: LocateGroup): PolicyResult<LocateGroup> {
    const parsed = this.#parsedPolicy(work.base, work.surroundings);
    if (parsed === undefined) return { kind: 'unknown' };
    if ('kind' in parsed) return parsed;
    const index = parsed.parts.groups.findIndex(({ group }) => group.id === work.group);
    const from = parsed.outline.starts[index];
    const to = parsed.outline.ends[index];
    return { kind: 'located', span: from === undefined || to === undefined ? null : { from, to } };
  }

  explain(work: ExplainPolicy): PolicyResult<ExplainPolicy> {
    const { key, text, surroundings, query, membership = NOTHING_LISTED } = work;
    let policy = key === null ? undefined : this.#explained.get(key);
    if (policy === undefined) {
      if (text === null) return { kind: 'unknown' };
      const read = readText(text, surroundings, null, { isStored: key !== null });
      if (!read.ok) return { kind: 'unreadable', code: read.code, problems: read.problems };
      policy = read.policy;
    }
    if (key !== null) this.#explained.keep(key, policy);
    return { kind: 'explained', explanation: explain(policy, query, { membership: membershipOf(membership) }) };
  }

  analyse({ policies, surroundings, question }: AnalysePolicies): PolicyResult<AnalysePolicies> {
    const read: Policy[] = [];
    for (const [at, { key, text }] of policies.entries()) {
      let policy = key === null ? undefined : this.#explained.get(key);
      if (policy === undefined) {
        if (text === null) return { kind: 'unknown' };
        const found = readText(text, surroundings, null, { isStored: key !== null });
        if (!found.ok) return { kind: 'unreadable', code: found.code, problems: found.problems, policy: at };
        policy = found.policy;
      }
      if (key !== null) this.#explained.keep(key, policy);
      read.push(policy);
    }
    return { kind: 'analysed', answer: analyse(read, question, surroundings.ipv6) };
  }

  checkAssertions(work: CheckAssertions): PolicyResult<CheckAssertions> {
    const { surroundings, assertions, former, budgetMs, limit } = work;
    const [before, after] = [work.before, work.after].map((of) => this.#model(of, surroundings));
    if (before === undefined || after === undefined) return { kind: 'unknown' };
    const over = performance.now() + budgetMs;
    const isOver = () => performance.now() >= over;
    const check = checkedWrite(before, after, assertions, { limit, isOver, ipv6: surroundings.ipv6 });
    const needed = check.needsFormer.filter((id) => former?.[id] === undefined);
    if (needed.length > 0) return { kind: 'needs_former', assertions: check.needsFormer };
    const found = check.found(({ id }) => this.#formerPolicy(former?.[id] ?? null, surroundings));
    return { kind: 'checked_assertions', found };
  }

  /**
   * Returns the model of a policy in force; undefined if neither the cache nor the task contains the policy.
   * While no policy is active, the setting `policy.fallback` decides all packets.
   */
  #model(of: KnownPolicy | null, surroundings: PolicySurroundings): Policy | undefined {
    const { fallback } = surroundings;
    if (of === null) return { groups: [], default: { action: fallback, mode: 'enforce', from: 'fallback' } };
    const parsed = this.#parsedPolicy(of, surroundings);
    if (parsed === undefined) return undefined;
    // The earlier policy may be one that this build cannot read any more: treat it as no policy.
    return 'kind' in parsed ? this.#model(null, surroundings) : policyOf(parsed.parts, fallback);
  }

  /** Returns an earlier policy; null if this build cannot read it any more. */
  #formerPolicy(of: KnownPolicy | null, surroundings: PolicySurroundings): Policy | null {
    if (of === null) return null;
    const known = this.#former.get(of.key);
    if (known !== undefined || of.text === null) return known ?? null;
    const read = readText(of.text, surroundings, null, { isStored: true });
    if (!read.ok) return null;
    this.#former.keep(of.key, read.policy);
    return read.policy;
  }

  describe({ text, surroundings, membership, maxBytes }: DescribePolicy): PolicyResult<DescribePolicy> {
    const read = readText(text, surroundings, null, { isStored: true });
    if (!read.ok) return { kind: 'unreadable', code: read.code, problems: read.problems };
    try {
      const listed = new TextEncoder().encode(listing(compile(read.policy, { membership, ipv6: surroundings.ipv6 })));
      return { kind: 'described', warnings: read.warnings, listing: listed.slice(0, maxBytes) };
    } catch (error) {
      if (error instanceof CompileTooLarge) return { kind: 'too_large', detail: error.message };
      throw error;
    }
  }

  /**
   * Returns the parsed policy with the cache key `key`. If the policy is not in the cache, parses `text`;
   * returns undefined if `text` is null.
   */
  #parsedPolicy(
    { key, text }: PrepareGroup['base'],
    surroundings: PolicySurroundings,
  ): ParsedPolicy | Unreadable | undefined {
    const known = this.#parsed.get(key);
    if (known !== undefined || text === null) return known;
    const read = readText(text, surroundings, null, { isStored: true });
    if (!read.ok) return { kind: 'unreadable', code: read.code, problems: read.problems.map(inRecord(text)) };
    this.#parsed.keep(key, read.parsed);
    return read.parsed;
  }

  #prepared(
    parts: PolicyParts,
    policy: Policy,
    work: Pick<PreparePolicy, 'compile' | 'surroundings'>,
    membership: ListedMembership,
  ): Omit<Prepared, 'warnings'> | TooLarge {
    const { mode, groups } = parts;
    const { compile: compiled, surroundings } = work;
    const { ipv6 } = surroundings;
    try {
      return {
        mode,
        needs: needsOf(policy),
        integrations: [...new Set(groups.flatMap(({ integrations }) => integrations))].sort(),
        selectors: policy.groups.flatMap(({ selectors }) => selectors),
        scope: membership.scope,
        program: compiled && mode !== 'disabled' ? compile(policy, { memory: this.#memory, membership, ipv6 }) : null,
        hasFormer: membership.former !== undefined && membership.former.addresses.length > 0,
        inspected: compiled && surroundings.servicePlane ? this.#inspected(policy, groups) : null,
        samples:
          compiled && mode !== 'disabled'
            ? afterwards(() => samplesOf(policy, { ipv6, memories: this.#proofs, membership }))
            : null,
      };
    } catch (error) {
      if (!(error instanceof CompileTooLarge)) throw error;
      // Compile again without the rules for sets of selectors that no address has now (`former`). These
      // rules only save a later compilation, so a policy must not be refused because of them.
      const { former, ...others } = membership;
      if (former !== undefined) return this.#prepared(parts, policy, work, others);
      return { kind: 'too_large', detail: error.message };
    }
  }

  /**
   * Serialises the policy for the service plane. Returns null if no rule has TLS matchers or a hostname:
   * then the program (compiled policy) can decide connections. The result is in shared memory, so other
   * threads need no copy.
   */
  #inspected(policy: Policy, parts: readonly GroupPart[]): Inspected | null {
    if (!factsOfGroups(policy.groups).some(({ hasTls, hasHostname }) => hasTls || hasHostname)) return null;
    const texts = inEvaluationOrder(parts).map(({ text }) => {
      if (text === undefined) throw new Error('serialise the policy: the text of a source group is missing');
      return text;
    });
    const intercepts = policy.groups.some(({ rules }) => rules.some(({ tls }) => tls?.mode === 'intercept'));
    return { policy: this.#writer.write(policy, texts), intercepts };
  }
}

type Finish = (membership: ListedMembership) => PolicyResult<PrepareWithMembers>;

/**
 * Runs `make`, which computes the proof samples (packets with expected verdicts), after the thread has
 * replied to its current task. So the reply does not wait for the samples.
 */
function afterwards<T>(make: () => T): Promise<T> {
  const made = new Promise((resolve) => setImmediate(resolve)).then(make);
  // Mark the promise as handled; the requester of the samples still receives a failure. Without this line,
  // failed samples that no thread requests would end the thread by an unhandled rejection.
  made.catch(() => {});
  return made;
}

function needsOf({ groups }: Policy): Needs {
  const facts = factsOfGroups(groups);
  return {
    dataplane: true,
    dns: facts.some(({ hasHostname }) => hasHostname),
    servicePlane: facts.some(({ hasTls }) => hasTls),
  };
}
