import type { AnalysisAnswer, AnalysisQuestion } from '#contracts/analysis/analysis.js';
import type { PolicyRecord, PolicyRevision, StoredPolicy, StoredRevision } from '#contracts/policy/policy-record.js';
import type { PolicyOutcome, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';
import type { Explained } from '#policy/explain/explain.js';
import type { HistoryPage, PolicyStore } from '#store/store-types.js';
import { type AnalysisPorts, analysePolicies, type PolicyReference } from './analysis.js';
import { type DescriptionPorts, describePolicy, type PolicyDescription } from './describe.js';
import { withDiff } from './dry-run-diff.js';
import { type ExplainPorts, type ExplainQuestion, explainPolicy } from './explain.js';
import { type GroupPorts, readGroup } from './read-group.js';

export type PolicyChoice =
  | { readonly by: 'active' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

export type PolicyOperations = {
  /**
   * Writes a policy. Resolves with a `Refusal` if the node refuses the write. Rejects only for other errors,
   * such as a bug.
   */
  write(write: PolicyWrite): Promise<PolicyOutcome>;
  /** Returns a stored policy; null if there is no such policy. */
  read(which: PolicyChoice): Promise<StoredPolicy | null>;
  /**
   * Returns the record of a policy, with the JSON text of one source group as `body`; null if the policy or
   * the group does not exist.
   */
  readGroup(id: string, group: string): Promise<StoredPolicy | Refusal | null>;
  list(): Promise<readonly PolicyRecord[]>;
  /** Returns revisions of a policy, newest first; none if the id was never used. */
  history(id: string, page: HistoryPage): Promise<readonly PolicyRevision[]>;
  /** Returns a revision of a policy; null if the history does not contain it. */
  revision(id: string, revision: number): Promise<StoredRevision | null>;
  /** Returns the generation (number of the activation) in force; 0 before the first activation. */
  generation(): number;
  /**
   * Waits until the generation (activation) `wanted` or a later one is in force. Returns false after
   * `withinMs`.
   */
  reaches(wanted: number, withinMs: number): Promise<boolean>;
  /**
   * Explains the decision of a policy. `subject` is the subject of the client's API token. Requests of
   * different subjects alternate in the queue.
   */
  explain(question: ExplainQuestion, subject: string): Promise<Explained | Refusal>;
  /**
   * Answers a question about policies. `subject`: as for `explain`. If `signal` is aborted, because the
   * client has disconnected, the analysis ends.
   */
  analyse(
    policies: readonly PolicyReference[],
    question: AnalysisQuestion,
    asked: { readonly subject: string; readonly signal: AbortSignal },
  ): Promise<AnalysisAnswer | Refusal>;
  /**
   * Returns a description of the active policy; null if no policy is active. A separate thread reads and
   * compiles the policy again.
   */
  describe(signal: AbortSignal): Promise<PolicyDescription | null>;
};

export type PolicyPorts = Pick<PolicyOperations, 'write' | 'generation' | 'reaches'> & {
  readonly policies: PolicyStore;
  readonly group: GroupPorts;
  readonly explain: ExplainPorts;
  readonly analysis: AnalysisPorts;
  readonly describe: () => DescriptionPorts;
};

export function policyOperations({
  policies,
  group,
  explain,
  analysis,
  describe,
  ...node
}: PolicyPorts): PolicyOperations {
  return {
    ...node,
    read: (which) => read(policies, which),
    readGroup: (id, name) => readGroup(group, id, name),
    list: () => policies.list(),
    history: (id, page) => policies.history(id, page),
    revision: (id, revision) => policies.revision(id, revision),
    explain: (question, subject) => explainPolicy(explain, question, subject),
    analyse: (references, question, asked) => analysePolicies(analysis, references, question, asked),
    write: async (write) => withDiff(analysis, write, await node.write(write)),
    describe: (signal) => describePolicy(describe(), signal),
  };
}

async function read(policies: PolicyStore, which: PolicyChoice): Promise<StoredPolicy | null> {
  switch (which.by) {
    case 'active':
      return policies.active();
    case 'id':
      return policies.get(which.id);
    case 'name': {
      const record = await policies.findByName(which.name);
      return record === null ? null : policies.get(record.id);
    }
  }
}
