import type { PolicyOutcome, PolicyWrite, Refusal } from '#bus/policy-requests.js';
import type { Statecharts } from '#bus/statecharts.js';
import type { KnownName } from '#contracts/known-name.js';
import type { PolicyConfig } from '#contracts/policy-document.js';
import type { Warning } from '#contracts/policy-problem.js';
import type { PolicyRecord, StoredPolicy } from '#contracts/policy-record.js';
import type { AuditEvent } from '#observe/findings/audit-event.js';
import type { FindingPage, FindingQuery } from '#observe/findings/finding-filter.js';
import type { Metrics } from '#observe/metrics.js';
import type { NodeStats, ReadinessReport } from '#observe/stats.js';
import type { Sysdumps } from '#observe/sysdump/sysdump.js';
import type { Sink } from '#observe/wiretap/readers.js';
import type { WiretapFilter } from '#observe/wiretap/wiretap-filter.js';
import type { ExplainQuery, Explanation } from '#policy/explain/explain.js';
import type { Traffic } from './traffic-json.js';

/** What the API needs of the node. `main.ts` hands it in; routes know nothing else of the system. */
export type Management = {
  readonly policies: {
    /** Never rejects for what the caller did wrong: that is a `Refusal`. */
    write(write: PolicyWrite): Promise<PolicyOutcome>;
    read(which: PolicyChoice): Promise<StoredPolicy | null>;
    /** The record of a policy with the text of one of its source groups; null where either is missing. */
    readGroup(id: string, group: string): Promise<StoredPolicy | Refusal | null>;
    list(): Promise<readonly PolicyRecord[]>;
    /** The generation in force; 0 before the first. */
    generation(): number;
  };
  /** `subject`: of the caller; the questions of subjects take turns. */
  explain(question: ExplainQuestion, subject: string): Promise<Explanation | Refusal>;
  readonly performanceMode: {
    read(): Promise<PerformanceMode>;
    write(write: PerformanceModeWrite): Promise<PerformanceMode | Refusal>;
  };
  readonly integrations: {
    list(): Promise<readonly IntegrationView[]>;
    read(name: string): Promise<IntegrationView | null>;
    write(write: IntegrationWrite): Promise<IntegrationWritten | Refusal>;
    remove(removal: IntegrationRemoval): Promise<{ readonly kind: 'deleted' } | Refusal>;
  };
  readonly interceptCa: {
    read(): Promise<InterceptCaView | null>;
    /** `dryRun`: the answer is that of the write, and nothing is stored. */
    put(
      write: WrittenBy & { readonly certPem: string; readonly keyPem: string; readonly dryRun: boolean },
    ): Promise<InterceptCaWritten | Refusal>;
    /** Makes one, in place of the one that there is. */
    generate(write: WrittenBy): Promise<InterceptCaWritten | Refusal>;
    remove(removal: Pick<WrittenBy, 'expectedRevision'>): Promise<{ readonly kind: 'deleted' } | Refusal>;
  };
  readonly tokens: {
    verify(token: string): Promise<TokenVerdict>;
    issue(request: TokenRequest): Promise<IssuedToken>;
    list(): readonly TokenRecord[];
    /** In force when it resolves; false where there is no such token. Revoking twice is no error. */
    revoke(id: string): Promise<boolean>;
  };
  readonly traffic: Traffic;
  readonly wiretap: Wiretap;
  readonly lookups: { names(): Promise<readonly KnownName[] | Refusal> };
  readonly findings: {
    query(query: FindingQuery): Promise<FindingPage | Refusal>;
    readonly nodeId: string;
  };
  /** Makes a finding of what the API did. Never throws, and keeps nobody waiting. */
  record(event: AuditEvent): void;
  readiness(): ReadinessReport;
  stats(): Promise<NodeStats>;
  readonly metrics: Metrics;
  readonly debug: Statecharts;
  readonly support: Pick<Sysdumps, 'begin'>;
};

type Wiretap = {
  /** For how long what was seen is kept for readers to come. */
  readonly replayMs: number;
  /** Sends what matches to the sink, first of what was seen in the last milliseconds. */
  read(filter: WiretapFilter, replayMs: number, sink: Sink): { close(): void };
};

export type PolicyChoice =
  | { readonly by: 'active' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

type Role = 'admin' | 'readonly';
/** Who sent a request: the id and subject of the token, and its role. */
export type Caller = { readonly id: string; readonly subject: string; readonly role: Role };

export type TokenVerdict =
  | { readonly kind: 'accepted'; readonly identity: Caller }
  | { readonly kind: 'refused'; readonly reason: string };

type TokenRequest = {
  readonly subject: string;
  readonly role: Role;
  /** Null: it does not expire. */
  readonly expiresInMs: number | null;
};
/** What is kept of a token: never the token itself. Times are ISO 8601, UTC. */
export type TokenRecord = {
  readonly id: string;
  readonly subject: string;
  readonly role: Role;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly revoked_at: string | null;
};
type IssuedToken = { readonly record: TokenRecord; readonly token: string };

export type PerformanceMode = {
  readonly enabled: boolean;
  readonly source: 'local' | 'cluster' | null;
  /** Counts the writes; 0 while the built-in default applies. */
  readonly revision: number;
};
type PerformanceModeWrite = {
  readonly enabled: boolean;
  readonly author: string;
  /** The revision that must be stored now; left out for any. Else `precondition_failed`. */
  readonly expectedRevision?: number;
};

/** An integration as it is shown: without its token. */
export type IntegrationView = {
  readonly name: string;
  readonly kind: 'kubernetes';
  readonly api_server_url: string;
  readonly ca_cert_pem: string;
  readonly revision: number;
  readonly created_at: string;
  readonly updated_at: string;
  readonly updated_by: string;
};
type IntegrationWrite = {
  readonly integration: {
    readonly name: string;
    readonly kind: 'kubernetes';
    readonly api_server_url: string;
    readonly ca_cert_pem: string;
    readonly service_account_token: string;
  };
  readonly author: string;
  /** The revision that must be stored now, 0 for none; left out for any. Else `precondition_failed`. */
  readonly expectedRevision?: number;
  /** The answer is that of the write, and nothing is stored. */
  readonly dryRun?: boolean;
};
type IntegrationWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  readonly integration: IntegrationView;
};
/** The intercept CA as it is shown: without its key. Times are ISO 8601, UTC. */
export type InterceptCaView = {
  readonly subject: string;
  readonly fingerprint_sha256: string;
  readonly not_before: string;
  readonly not_after: string;
  readonly cert_pem: string;
  readonly revision: number;
  readonly updated_at: string;
  readonly updated_by: string;
};
type InterceptCaWritten = {
  readonly kind: 'written';
  readonly ca: InterceptCaView;
  readonly warnings: readonly Warning[];
};
type WrittenBy = {
  readonly author: string;
  /** The revision that must be stored now, 0 for none; left out for any. Else `precondition_failed`. */
  readonly expectedRevision?: number;
};
type IntegrationRemoval = { readonly name: string; readonly expectedRevision?: number; readonly dryRun?: boolean };

/** B1. `policy` is a draft in singleton form, of the right shape but not yet validated; left out, the active one. */
export type ExplainQuestion = { readonly policy?: PolicyConfig; readonly query: ExplainQuery };
