import type { IncomingMessage } from 'node:http';
import type { PolicyOutcome, PolicyWrite, Refusal } from '#bus/policy-requests.js';
import type { Statecharts } from '#bus/statecharts.js';
import type { OwnerName } from '#contracts/address-owner.js';
import type { LastReload, ReloadReport, ReloadRequest } from '#contracts/config-reload.js';
import type { GroupMembers, IntegrationStatus } from '#contracts/integration-status.js';
import type { KnownName } from '#contracts/known-name.js';
import type { PendingChange, RevertedChange } from '#contracts/pending-change.js';
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
import type { Explained, ExplainQuery } from '#policy/explain/explain.js';
import type { Traffic } from './traffic-json.js';

/**
 * The interface through which API routes use the node. `node.ts` implements it. Routes must not use other
 * objects of the node.
 */
export type Management = {
  readonly policies: {
    /**
     * Writes a policy. Resolves with a `Refusal` if the node refuses the write for one of the reasons in
     * `RefusalCode`. Rejects only for other errors, such as a bug.
     */
    write(write: PolicyWrite): Promise<PolicyOutcome>;
    read(which: PolicyChoice): Promise<StoredPolicy | null>;
    /**
     * Returns the record of a policy, with the text of source group `group` as `body` instead of the whole
     * policy. Returns null if the policy or the source group does not exist.
     */
    readGroup(id: string, group: string): Promise<StoredPolicy | Refusal | null>;
    list(): Promise<readonly PolicyRecord[]>;
    /** Returns the generation of the program in force; 0 before the first activation. */
    generation(): number;
    /** Waits for the generation `wanted` or a later one. Resolves with false after `withinMs`. */
    reaches(wanted: number, withinMs: number): Promise<boolean>;
  };
  /**
   * Explains a decision. `subject` is the subject of the client's token. The node answers questions of
   * different subjects in turns, so that one client cannot delay all other clients.
   */
  explain(question: ExplainQuestion, subject: string): Promise<Explained | Refusal>;
  readonly performanceMode: {
    /** Where a written performance mode is stored. */
    readonly source: 'local' | 'cluster';
    read(): Promise<PerformanceMode>;
    write(write: PerformanceModeWrite): Promise<PerformanceMode | Refusal>;
  };
  readonly configuration: {
    /** Reloads the configuration file. With `dryRun`, returns what would change, and changes nothing. */
    reload(request: ReloadRequest): Promise<ReloadReport | Refusal>;
    /** The last reload that was no dry run; null if there was none since the start of the node. */
    lastReload(): LastReload | null;
  };
  readonly integrations: {
    list(): Promise<readonly IntegrationView[]>;
    read(name: string): Promise<IntegrationView | null>;
    write(write: IntegrationWrite): Promise<IntegrationWritten | Refusal>;
    remove(removal: IntegrationRemoval): Promise<{ readonly kind: 'deleted' } | Refusal>;
  };
  readonly kubernetes: {
    /** Returns the state of an integration on this node; null if there is no such integration. */
    status(integration: string): Promise<IntegrationStatus | Refusal | null>;
    /**
     * Returns a page of the addresses that the selectors of a source group select. `after`: only addresses
     * after this address. Null if there is no such policy or group.
     */
    members(query: {
      readonly policy: string;
      readonly group: string;
      readonly after: number | null;
      readonly limit: number;
    }): Promise<GroupMembers | Refusal | null>;
  };
  readonly interceptCa: {
    read(): Promise<InterceptCaView | null>;
    /** Replaces the intercept CA. With `dryRun`, returns the result of the write but stores nothing. */
    put(
      write: WrittenBy & { readonly certPem: string; readonly keyPem: string; readonly dryRun: boolean },
    ): Promise<InterceptCaWritten | Refusal>;
    /** Generates a new intercept CA, which replaces the stored intercept CA. */
    generate(write: WrittenBy): Promise<InterceptCaWritten | Refusal>;
    remove(removal: Pick<WrittenBy, 'expectedRevision'>): Promise<{ readonly kind: 'deleted' } | Refusal>;
  };
  /** The policy write that goes back by itself. */
  readonly pendingChange: {
    read(): Promise<ChangeView>;
    /**
     * Confirms or reverts the pending change. `generation`: the only generation that may be ended, if given.
     * Resolves when this node enforces the result, or with `isEnforced: false` after 10 s.
     */
    end(end: {
      readonly outcome: 'complete' | 'revert';
      readonly generation: number | undefined;
      readonly author: string;
      readonly dryRun: boolean;
    }): Promise<Refusal | { readonly kind: 'ended'; readonly generation: number; readonly isEnforced: boolean }>;
  };
  readonly cluster: {
    status(): Promise<ClusterView>;
    /** Creates the cluster in etcd. Resolves with null on success. */
    init(write: { readonly dryRun: boolean; readonly author: string }): Promise<Refusal | null>;
    /** Ends a contradiction between this node and etcd. Resolves with null on success. */
    recover(write: {
      readonly keep: 'node' | 'store';
      readonly dryRun: boolean;
      readonly author: string;
    }): Promise<Refusal | null>;
    /** All nodes that have joined the cluster, sorted by id. A node without cluster returns itself. */
    nodes(): Promise<readonly ClusterNode[]>;
    /** Removes a node from the cluster. Resolves with null on success. */
    remove(removal: {
      readonly id: string;
      readonly author: string;
      readonly dryRun: boolean;
    }): Promise<Refusal | null>;
    /** Issues a token with which one other node can join the cluster. */
    issueJoinToken(): JoinToken | Refusal;
    /** Returns what a node needs to join the cluster, if the secret is that of a valid join token. */
    redeemJoinToken(secret: string): Promise<ClusterAccess | null>;
  };
  readonly peers: Peers;
  readonly tokens: {
    verify(token: string): Promise<TokenVerdict>;
    issue(request: TokenRequest): Promise<IssuedToken>;
    list(): readonly TokenRecord[];
    /**
     * Revokes a token. When the promise resolves, the API already rejects the token. Resolves with false if
     * there is no such token, and with true if the token was already revoked.
     */
    revoke(id: string): Promise<boolean>;
  };
  readonly traffic: Traffic;
  /** Returns the Kubernetes object that owns an address now; null if none does. */
  readonly ownerOf: (address: number) => OwnerName | null;
  readonly wiretap: Wiretap;
  readonly lookups: { names(): Promise<readonly KnownName[] | Refusal> };
  readonly findings: {
    query(query: FindingQuery): Promise<FindingPage | Refusal>;
    readonly nodeId: string;
  };
  /** Records an API event as a finding. Returns immediately and never throws. */
  record(event: AuditEvent): void;
  readiness(): ReadinessReport;
  /**
   * Returns the time since when the kernel enforces the generation in force: ISO 8601, UTC. Null if nothing
   * is in force, or if the time is not known.
   */
  inForceSince(): string | null;
  /**
   * Returns the generation that the kernel enforces although the data folder contains no generation as new:
   * the folder is an older or another one, and its active policy is not in force. Null otherwise.
   */
  enforcedInstead(): Promise<number | null>;
  stats(): Promise<NodeStats>;
  readonly metrics: Metrics;
  readonly debug: Statecharts;
  readonly support: Pick<Sysdumps, 'begin'>;
};

type Wiretap = {
  /** For how many milliseconds the node keeps wiretap messages, for readers that connect later. */
  readonly replayMs: number;
  /**
   * Adds a wiretap reader. The sink first receives the kept messages of the last `replayMs` milliseconds that
   * match the filter, and then new messages that match. The returned `close` removes the reader.
   */
  read(filter: WiretapFilter, replayMs: number, sink: Sink): { close(): void };
};

export type PolicyChoice =
  | { readonly by: 'active' }
  | { readonly by: 'id'; readonly id: string }
  | { readonly by: 'name'; readonly name: string };

/** The pending change, and the last change that went back. */
export type ChangeView = {
  readonly pending:
    | (PendingChange & {
        /** Null if etcd cannot be reached. */
        readonly nodes: readonly { readonly node: string; readonly fault: string | null }[] | null;
      })
    | null;
  readonly reverted: RevertedChange | null;
};

/** The cluster as this node sees it. */
export type ClusterView = {
  readonly enabled: boolean;
  readonly nodeId: string;
  readonly clusterId: string | null;
  readonly connected: boolean;
  readonly leader: string | null;
  readonly generation: number;
  readonly revision: number | null;
  /** The values of etcd that this node cannot read, sorted by key. */
  readonly unreadable: readonly { readonly key: string; readonly reason: string }[];
  /** Null while etcd cannot be reached. */
  readonly members:
    | readonly {
        readonly id: string;
        readonly address: string;
        readonly version: string;
        readonly generation: number;
        readonly since: string;
      }[]
    | null;
};

/** A node of the cluster. `member` is null if the node is absent. */
export type ClusterNode = {
  readonly id: string;
  readonly address: string;
  readonly version: string;
  readonly joinedAt: string;
  readonly member: { readonly generation: number; readonly since: string } | null;
};
type JoinToken = { readonly token: string; readonly expiresAt: Date };
/** How a node reaches etcd, and the secrets that all nodes of the cluster have. Files are texts. */
type ClusterAccess = {
  readonly prefix: string;
  readonly endpoints: readonly string[];
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string } | null;
  readonly user: { readonly name: string; readonly password: string } | null;
  readonly sealKey: string | null;
};

/** The other nodes of the cluster, see `src/cluster/peers/peers.ts`. A node without cluster has none. */
export type Peers = {
  /** Sends a GET request to all other nodes. Nodes without a response are in `failures`. */
  askAll(
    path: string,
    onResponse: (response: {
      readonly node: string;
      readonly status: number;
      readonly body: unknown;
      /** The milliseconds from the request to the response. */
      readonly tookMs: number;
    }) => void,
    options?: { readonly without?: readonly string[]; readonly withinMs?: number },
  ): Promise<{
    readonly asked: number;
    readonly failures: readonly { readonly node: string; readonly error: string }[];
  }>;
  /** Sends a request to one node. Rejects if the node does not respond. */
  open(
    node: string,
    request: {
      readonly method: 'GET' | 'POST';
      readonly path: string;
      readonly headers?: Readonly<Record<string, string>>;
    },
    signal: AbortSignal,
  ): Promise<IncomingMessage>;
  others(): Promise<readonly { readonly id: string }[]>;
  /** Returns the id of the node that announced a certificate in DER; null if there is none. */
  nodeWith(certificate: Buffer): Promise<string | null>;
};

type Role = 'admin' | 'readonly';
/** The authenticated client of a request. `id` and `subject` are those of its token. */
export type Caller = { readonly id: string; readonly subject: string; readonly role: Role };

export type TokenVerdict =
  | { readonly kind: 'accepted'; readonly identity: Caller }
  | { readonly kind: 'refused'; readonly reason: string };

type TokenRequest = {
  readonly subject: string;
  readonly role: Role;
  /** The lifetime of the token in milliseconds. Null: the token never expires. */
  readonly expiresInMs: number | null;
};
/** The stored data about an API token. The token itself is never stored. Times are in ISO 8601, UTC. */
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
  /**
   * The revision of the setting: each write increments it. 0 if the setting was never written and its default
   * applies.
   */
  readonly revision: number;
};
type PerformanceModeWrite = {
  readonly enabled: boolean;
  readonly author: string;
  /**
   * The revision that the stored setting must have before the write. If omitted, the setting may have any
   * revision. With another revision, the write fails with `precondition_failed`.
   */
  readonly expectedRevision?: number;
};

/** A stored integration in API responses, without its service account token. */
export type StoredIntegrationView = {
  readonly name: string;
  readonly kind: 'kubernetes';
  readonly api_server_url: string;
  readonly ca_cert_pem: string;
  readonly in_cluster: false;
  readonly revision: number;
  readonly created_at: string;
  readonly updated_at: string;
  readonly updated_by: string;
};
/** `in_cluster: true`: the configuration of the node defines the integration, and no write is possible. */
export type IntegrationView =
  | StoredIntegrationView
  | { readonly name: string; readonly kind: 'kubernetes'; readonly in_cluster: true };
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
   * The revision that the stored integration must have before the write; 0 if no integration with this name
   * may exist. If omitted, any revision is accepted. With another revision, the write fails with
   * `precondition_failed`.
   */
  readonly expectedRevision?: number;
  /** If true, the write returns its result but stores nothing. */
  readonly dryRun?: boolean;
  /** Whether the write tries the connection to the API server, and warns if it fails. */
  readonly tryAccess: boolean;
};
type IntegrationWritten = {
  readonly kind: 'written';
  readonly created: boolean;
  readonly integration: StoredIntegrationView;
  readonly warnings: readonly Warning[];
};
/** The intercept CA in API responses, without its private key. Times are in ISO 8601, UTC. */
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
   * The revision that the stored CA must have before the write; 0 if no CA may exist. If omitted, any
   * revision is accepted. With another revision, the write fails with `precondition_failed`.
   */
  readonly expectedRevision?: number;
};
type IntegrationRemoval = { readonly name: string; readonly expectedRevision?: number; readonly dryRun?: boolean };

/**
 * A question to the explain operation (B1). `policy` is a draft in singleton form; its JSON shape is checked,
 * but the policy is not validated. Without `policy`, the answer explains the active policy.
 */
export type ExplainQuestion = { readonly policy?: PolicyConfig; readonly query: ExplainQuery };
