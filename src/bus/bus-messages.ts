import type { Lookups } from '#contracts/dns-lookups.js';
import type { InspectionImage } from '#contracts/inspection-image.js';
import type { PolicyRecord } from '#contracts/policy-record.js';
import type { Program } from '#contracts/program.js';
import type { Proof, ProofSample, SampleOrPromise } from '#contracts/proof-types.js';
import type { PolicyOutcome, PolicyWrite, Refusal } from './policy-requests.js';

/** The parts of the node that the active policy requires. */
export type Needs = { readonly dataplane: boolean; readonly dns: boolean; readonly servicePlane: boolean };

export type PerformanceMode = {
  readonly enabled: boolean;
  readonly source: 'local' | 'cluster' | null;
  /** Incremented by each write; 0 while the built-in default applies. */
  readonly revision: number;
};
export type PerformanceModeWrite = {
  readonly enabled: boolean;
  readonly author: string;
  /**
   * The revision that must be stored now; any if omitted. Otherwise the write fails with
   * `precondition_failed`.
   */
  readonly expectedRevision?: number;
};

/** All requests over the bus with their responses. Every request can also return a `Refusal`. */
export type Exchanges = {
  'policy.write': { readonly asks: { readonly write: PolicyWrite }; readonly outcome: PolicyOutcome };
  'performance_mode.write': {
    readonly asks: { readonly write: PerformanceModeWrite };
    readonly outcome: { readonly kind: 'changed'; readonly mode: PerformanceMode };
  };
  /** Fills the inactive slot of the datapath, and checks it with the sample of packets (B5). */
  'program.stage': {
    readonly asks: { readonly program: Program; readonly sample: SampleOrPromise; readonly generation: number };
    readonly outcome: { readonly kind: 'staged'; readonly lines: number; readonly proof: Proof };
  };
  /**
   * Activates the staged program. The response follows the activation, also if the datapath had to be opened
   * again for it.
   */
  'program.flip': {
    readonly asks: { readonly generation: number };
    readonly outcome: { readonly kind: 'flipped'; readonly epoch: number };
  };
  'program.unstage': {
    readonly asks: { readonly generation: number };
    readonly outcome: { readonly kind: 'unstaged' };
  };
};
export type Exchange = keyof Exchanges;

export type RequestMessage<E extends Exchange = Exchange> = {
  [K in E]: { readonly type: `${K}_requested`; readonly id: string } & Exchanges[K]['asks'];
}[E];
export type AnswerMessage<E extends Exchange = Exchange> = {
  [K in E]: {
    readonly type: `${K}_answered`;
    readonly id: string;
    readonly outcome: Exchanges[K]['outcome'] | Refusal;
  };
}[E];

/** A fact: something that has happened. */
export type Fact =
  | {
      readonly type: 'policy.activated';
      /** Null: no policy is active, and `policy.fallback` decides. */
      readonly record: PolicyRecord | null;
      readonly generation: number;
      /** Null without a dataplane. */
      readonly epoch: number | null;
      readonly needs: Needs;
      readonly lookups: Lookups;
      readonly inspection: InspectionImage;
    }
  /** The program that the dataplane must enforce from now on, in whatever state it is. */
  | {
      readonly type: 'program.desired';
      readonly program: Program;
      readonly sample: ProofSample;
      readonly generation: number;
    }
  /** The staged program was checked against the policy with every packet of its sample (B5). */
  | { readonly type: 'program.proved'; readonly generation: number; readonly proof: Proof }
  | { readonly type: 'program.disproved'; readonly generation: number; readonly detail: string }
  | { readonly type: 'program.rejected'; readonly generation: number; readonly refusal: Refusal }
  /**
   * The dataplane was opened over a program that an earlier process left in the kernel; 0: there was none.
   */
  | { readonly type: 'dataplane.adopted'; readonly generation: number }
  /** The hooks are attached, but the dataplane has no program. The policy actor must send one. */
  | { readonly type: 'dataplane.attached' }
  | { readonly type: 'dataplane.enforcing'; readonly generation: number; readonly epoch: number }
  | { readonly type: 'dataplane.lost'; readonly reason: string }
  | { readonly type: 'dataplane.closed' }
  | { readonly type: 'performance_mode.changed'; readonly mode: PerformanceMode }
  | { readonly type: 'node.draining' }
  /** No policy write is in progress any more. */
  | { readonly type: 'policy.drained' }
  | { readonly type: 'dataplane.release_requested' };

export type Message = RequestMessage | AnswerMessage | Fact;
