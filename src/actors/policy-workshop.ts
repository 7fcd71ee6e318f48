import { X509Certificate } from 'node:crypto';
import { CompileTooLarge } from '#policy/budget.js';
import { compile } from '#policy/compile.js';
import type { PolicyConfig } from '#policy/document.js';
import { explain } from '#policy/explain.js';
import type { Policy } from '#policy/model.js';
import { sampleOf } from '#policy/proof-sample.js';
import { type ReadPolicy, readPolicy } from '#policy/read.js';
import type {
  ExplainPolicy,
  PolicyResult,
  PolicySurroundings,
  PolicyText,
  PolicyWork,
  PreparePolicy,
} from './policy-work.js';

const KEPT_POLICIES = 2;

/** Does the work of the policy thread, and keeps the policies that it explained last. */
export function createPolicyWorkshop(): <W extends PolicyWork>(work: W) => PolicyResult<W> {
  const kept = new Map<string, Policy>();
  const perform = (work: PolicyWork) => (work.kind === 'prepare' ? prepare(work) : explainBy(work, kept));
  return perform as <W extends PolicyWork>(work: W) => PolicyResult<W>;
}

function prepare(work: PreparePolicy): PolicyResult<PreparePolicy> {
  const read = readText(work.text, work.surroundings, work.integrations);
  if (!read.ok) return { kind: 'unreadable', code: read.code, problems: read.problems };
  const { policyJson, mode, name, warnings, policy } = read;
  const compiled = work.compile && mode !== 'disabled';
  try {
    return {
      kind: 'prepared',
      policyJson,
      mode,
      name,
      warnings,
      needs: {
        dataplane: true,
        dns: policy.groups.some(({ rules }) => rules.some(({ hostname }) => hostname !== undefined)),
        servicePlane: policy.groups.some(({ rules }) => rules.some(({ tls }) => tls !== undefined)),
      },
      integrations: integrationsOf(read.config),
      program: compiled ? compile(policy) : null,
      sample: compiled ? sampleOf(policy) : null,
    };
  } catch (error) {
    if (error instanceof CompileTooLarge) return { kind: 'too_large', detail: error.message };
    throw error;
  }
}

function explainBy(work: ExplainPolicy, kept: Map<string, Policy>): PolicyResult<ExplainPolicy> {
  const { key, text, surroundings, query } = work;
  let policy = key === null ? undefined : kept.get(key);
  if (policy === undefined) {
    if (text === null) return { kind: 'unknown' };
    const read = readText(text, surroundings, null);
    if (!read.ok) return { kind: 'unreadable', code: read.code, problems: read.problems };
    policy = read.policy;
  }
  if (key !== null) keep(kept, key, policy);
  return { kind: 'explained', explanation: explain(policy, query) };
}

function keep(kept: Map<string, Policy>, key: string, policy: Policy): void {
  kept.delete(key);
  kept.set(key, policy);
  const [oldest] = kept.keys();
  if (kept.size > KEPT_POLICIES && oldest !== undefined) kept.delete(oldest);
}

function readText(
  text: PolicyText,
  surroundings: PolicySurroundings,
  integrations: readonly string[] | null,
): ReadPolicy {
  return readPolicy(text.body, {
    ...surroundings,
    form: text.form,
    recordMode: text.recordMode,
    integrations: integrations === null ? undefined : new Set(integrations),
    parseCertificate,
  });
}

function parseCertificate(pem: string): string | undefined {
  try {
    new X509Certificate(pem);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function integrationsOf({ source_groups: groups = [] }: PolicyConfig): string[] {
  const names = groups.flatMap(({ sources }) => (sources.kubernetes ?? []).map(({ integration }) => integration));
  return [...new Set(names)].sort();
}
