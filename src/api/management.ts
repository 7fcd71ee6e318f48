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

/**
 * The interface between the API and the node. `main.ts` provides it; routes use nothing else of the system.
 */
export type Management = {
  readonly policies: {
    /** Never rejects for an error of the caller: such an error is a `Refusal`. */
    write(write: PolicyWrite): Promise<PolicyOutcome>;
    read(which: PolicyChoice): Promise<StoredPolicy | null>;
    /** The record of a policy with the text of one of its source groups. Null if either is missing. */
    readGroup(id: string, group: string): Promise<StoredPolicy | Refusal | null>;
    list(): Promise<readonly PolicyRecord[]>;
    /** The active generation; 0 before the first. */
    generation(): number;
  };
  /** `subject` is the caller's: questions of different subjects take turns. */
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
    /** `dryRun`: returns the result of the write, and stores nothing. */
    put(
      write: WrittenBy & { readonly certPem: string; readonly keyPem: string; readonly dryRun: boolean },
    ): Promise<InterceptCaWritten | Refusal>;
    /** Generates a CA and replaces the stored one. */
    generate(write: WrittenBy): Promise<InterceptCaWritten | Refusal>;
    remove(removal: Pick<WrittenBy, 'expectedRevision'>): Promise<{ readonly kind: 'deleted' } | Refusal>;
  };
  readonly tokens: {
    verify(token: string): Promise<TokenVerdict>;
    issue(request: TokenRequest): Promise<IssuedToken>;
    list(): readonly TokenRecord[];
    /**
     * The token is rejected from the moment this resolves. False if there is no such token; revoking twice is
     * no error.
     */
    revoke(id: string): Promise<boolean>;
  };
  readonly traffic: Traffic;
  readonly wiretap: Wiretap;
  readonly lookups: { names(): Promise<readonly KnownName[] | Refusal> };
  readonly findings: {
    query(query: FindingQuery): Promise<FindingPage | Refusal>;
    readonly nodeId: string;
  };
  /** Records a finding about an action of the API. Never throws and never blocks. */
  record(event: AuditEvent): void;
  readiness(): ReadinessReport;
  stats(): Promise<NodeStats>;
  readonly metrics: Metrics;
  readonly debug: Statecharts;
  readonly support: Pick<Sysdumps, 'begin'>;
};

type Wiretap = {
  /** How long messages are kept for later readers. */
  readonly replayMs: number;
  /** Sends matching messages to the sink, first those of the last `replayMs`. */
  read(filter: WiretapFilter, replayMs: number, sink: Sink): { close(): void };
};

export type PolicyChoice =
  | { readonly by: 'active' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

type Role = 'admin' | 'readonly';
/** The caller of a request: the id and subject of its token, and its role. */
export type Caller = { readonly id: string; readonly subject: string; readonly role: Role };

export type TokenVerdict =
  | { readonly kind: 'accepted'; readonly identity: Caller }
  | { readonly kind: 'refused'; readonly reason: string };

type TokenRequest = {
  readonly subject: string;
  readonly role: Role;
  /** Null: the token does not expire. */
  readonly expiresInMs: number | null;
};
/** The stored data of a token; the token itself is never stored. Times are ISO 8601, UTC. */
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
  /** Incremented by each write; 0 while the built-in default applies. */
  readonly revision: number;
};
type PerformanceModeWrite = {
  readonly enabled: boolean;
  readonly author: string;
  /**
   * The revision that must be stored now; any if omitted. Otherwise the write fails with
   * `precondition_failed`.
   */
  readonly expectedRevision?: number;
};

/** An integration in responses: without its token. */
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
  /**
   * The revision that must be stored now; 0 for none, omitted for any. Otherwise the write fails with
   * `precondition_failed`.
   */
  readonly expectedRevision?: number;
  /** Returns the result of the write, and stores nothing. */
  readonly dryRun?: boolean;
};
type IntegrationWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  readonly integration: IntegrationView;
};
/** The intercept CA in responses: without its key. Times are ISO 8601, UTC. */
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
  /**
   * The revision that must be stored now; 0 for none, omitted for any. Otherwise the write fails with
   * `precondition_failed`.
   */
  readonly expectedRevision?: number;
};
type IntegrationRemoval = { readonly name: string; readonly expectedRevision?: number; readonly dryRun?: boolean };

/**
 * A question of B1. `policy` is a draft in singleton form with the right shape, not yet validated. If
 * omitted, the active policy is explained.
 */
export type ExplainQuestion = { readonly policy?: PolicyConfig; readonly query: ExplainQuery };
