import type {
  DnsSettings,
  InterfaceSettings,
  ReloadReport,
  ReloadRequest,
  ReloadResult,
  ServicePlaneSettings,
} from '#contracts/config/config-reload.js';
import type { Lookups } from '#contracts/dns/dns-lookups.js';
import type { Selector } from '#contracts/policy/policy-model.js';
import type { PolicyRecord } from '#contracts/policy/policy-record.js';
import type { PolicyOutcome, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { Program } from '#contracts/policy/program.js';
import type { Proof, ProofSamples, SamplesOrPromise } from '#contracts/policy/proof-types.js';
import type { Refusal } from '#contracts/refusal.js';
import type { InspectionImage } from '#contracts/service-plane/inspection-image.js';

/** For each of these parts of the node, whether the active policy needs it. */
export type Needs = { readonly dataplane: boolean; readonly dns: boolean; readonly servicePlane: boolean };

export type PerformanceMode = {
  /** True, the default: findings and wiretap are available. False: the kernel sends no events (D34). */
  readonly enabled: boolean;
  readonly source: 'local' | 'cluster' | null;
  /** The number of writes of the setting; 0 while the built-in default applies. */
  readonly revision: number;
};
export type PerformanceModeWrite = {
  /** Whether performance mode is enabled, so that the node records findings and sends wiretap messages. */
  readonly enabled: boolean;
  readonly author: string;
  /**
   * The write fails with `precondition_failed` if the stored revision differs from this number. Without this
   * field, the write succeeds for any stored revision.
   */
  readonly expectedRevision?: number;
};

/**
 * All kinds of requests on the bus: `parameters` is the content of the request, `outcome` that of its
 * response. The response to any request can also be a `Refusal`.
 */
export type Exchanges = {
  'policy.write': { readonly parameters: { readonly write: PolicyWrite }; readonly outcome: PolicyOutcome };
  'performance_mode.write': {
    readonly parameters: { readonly write: PerformanceModeWrite };
    readonly outcome: { readonly kind: 'changed'; readonly mode: PerformanceMode };
  };
  /**
   * The dataplane writes the program to the idle program slot, and makes the datapath classify samples of
   * packets. Each verdict must equal the expected verdict (B5).
   */
  'program.stage': {
    readonly parameters: { readonly program: Program; readonly samples: SamplesOrPromise; readonly generation: number };
    readonly outcome: { readonly kind: 'staged'; readonly lines: number; readonly proof: Proof };
  };
  /**
   * The dataplane puts the staged program in force, and then sends the response. If the datapath fails during
   * this, the dataplane first opens the datapath again.
   */
  'program.flip': {
    readonly parameters: { readonly generation: number };
    readonly outcome: { readonly kind: 'flipped'; readonly epoch: number };
  };
  'program.unstage': {
    readonly parameters: { readonly generation: number };
    readonly outcome: { readonly kind: 'unstaged' };
  };
  /**
   * Reads the configuration file again, and puts the changes in force that need no restart. `until`: the
   * value of `performance.now()` until which the requester waits. A reload that has not begun by then is
   * dropped.
   */
  'config.reload': {
    readonly parameters: { readonly request: ReloadRequest; readonly until: number };
    readonly outcome: ReloadReport;
  };
  /**
   * A reload gives new settings to a running part. The part applies either all of them, or refuses and keeps
   * its former settings.
   */
  'interfaces.change': {
    readonly parameters: { readonly settings: InterfaceSettings };
    readonly outcome: { readonly kind: 'changed' };
  };
  'dns.change': {
    readonly parameters: { readonly settings: DnsSettings };
    readonly outcome: { readonly kind: 'changed' };
  };
  'service_plane.change': {
    readonly parameters: { readonly settings: ServicePlaneSettings };
    readonly outcome: { readonly kind: 'changed' };
  };
};
export type Exchange = keyof Exchanges;

export type RequestMessage<E extends Exchange = Exchange> = {
  [K in E]: { readonly type: `${K}_requested`; readonly id: string } & Exchanges[K]['parameters'];
}[E];
export type AnswerMessage<E extends Exchange = Exchange> = {
  [K in E]: {
    readonly type: `${K}_answered`;
    readonly id: string;
    readonly outcome: Exchanges[K]['outcome'] | Refusal;
  };
}[E];

/**
 * A source group in the text of a policy: the bytes from offset `from` to offset `to`, which is excluded. The
 * two offsets are equal if the write removes the group.
 */
export type GroupOfText = { readonly id: string; readonly from: number; readonly to: number };

/**
 * A policy write of another node before its commit. The nodes of the cluster stage the policy and vote. `id`
 * is the id of the lock entry of the write.
 */
export type PolicyProposal = {
  readonly id: string;
  readonly node: string;
  readonly generation: number;
  /** The record that the write puts in force. Null: the write leaves no policy active. */
  readonly record: PolicyRecord | null;
  /** The hash of the list of parts as which the store keeps the policy text; empty if `record` is null. */
  readonly bodySha256: string;
  /**
   * The source group that the write changes, if it changes only one. A node that has compiled the policy
   * before then compiles only this group.
   */
  readonly group?: GroupOfText;
  /**
   * The new parts of the text of a small policy, and the list of its parts: base64 by key in the store. Other
   * nodes then need not read them from etcd.
   */
  readonly bodies?: Readonly<Record<string, string>>;
};

/** A message about an event that has already happened. No actor responds to it. */
export type Fact =
  | {
      readonly type: 'policy.activated';
      /** The record of the activated policy. Null: no policy is active, and `policy.fallback` decides. */
      readonly record: PolicyRecord | null;
      readonly generation: number;
      /** The epoch that the activation has in the kernel; null on a node without a dataplane. */
      readonly epoch: number | null;
      readonly needs: Needs;
      readonly selectors: readonly Selector[];
      readonly lookups: Lookups;
      readonly inspection: InspectionImage;
    }
  /** The members of selectors have changed so that the policy in force must be compiled again. */
  | { readonly type: 'membership.changed' }
  /**
   * The dataplane must enforce this program from now on. The dataplane actor accepts this message in each of
   * its states.
   */
  | {
      readonly type: 'program.desired';
      readonly program: Program;
      readonly samples: ProofSamples;
      readonly generation: number;
    }
  /** The datapath classified every packet of the samples as the policy demands (B5). */
  | { readonly type: 'program.proved'; readonly generation: number; readonly proof: Proof }
  | { readonly type: 'program.disproved'; readonly generation: number; readonly detail: string }
  | { readonly type: 'program.rejected'; readonly generation: number; readonly refusal: Refusal }
  /**
   * The dataplane took over the datapath that an earlier process left in the kernel. `generation` is the
   * generation of the policy that is in force there; 0 if none is in force.
   */
  | { readonly type: 'dataplane.adopted'; readonly generation: number }
  /**
   * The BPF programs are attached, but the dataplane has received no program to enforce. The policy actor
   * must send a program.
   */
  | { readonly type: 'dataplane.attached' }
  | { readonly type: 'dataplane.enforcing'; readonly generation: number; readonly epoch: number }
  | { readonly type: 'dataplane.lost'; readonly reason: string }
  | { readonly type: 'dataplane.closed' }
  /**
   * The store contains a policy that this node must enforce, with this generation: after a commit of the
   * cluster, or after the revert of a pending change.
   */
  | { readonly type: 'policy.committed'; readonly generation: number }
  /** This node has ended a pending change, because the time of the change has elapsed or a node failed. */
  | {
      readonly type: 'policy.change_ended';
      readonly generation: number;
      readonly outcome: 'complete' | 'revert';
      readonly reason: string;
    }
  /** Another node proposes a policy write. */
  | { readonly type: 'policy.proposed'; readonly proposal: PolicyProposal }
  /** A proposal of another node has ended, after its commit or without a commit. */
  | { readonly type: 'policy.proposal_ended'; readonly id: string }
  /** An operator has ended a contradiction between etcd and the state that this node has applied. */
  | { readonly type: 'cluster.recovered' }
  /** A reload of the configuration, other than a dry run, has ended. */
  | {
      readonly type: 'config.reloaded';
      readonly by: string;
      readonly result: ReloadResult;
      /** Why the reload was refused; null if the result is `applied`. */
      readonly failure: Refusal | null;
      readonly applied: readonly string[];
      readonly needsRestart: readonly string[];
    }
  | { readonly type: 'performance_mode.changed'; readonly mode: PerformanceMode }
  | { readonly type: 'node.draining' }
  /** The node shuts down: the policy actor accepts no more writes, and its last write has finished. */
  | { readonly type: 'policy.drained' }
  | { readonly type: 'dataplane.release_requested' };

export type Message = RequestMessage | AnswerMessage | Fact;
