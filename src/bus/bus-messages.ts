import type { InspectionImage } from '#contracts/inspection-image.js';
import type { Lookups } from '#contracts/lookups.js';
import type { PolicyRecord } from '#contracts/policy-record.js';
import type { Program } from '#contracts/program.js';
import type { Proof, ProofSample, Sampling } from '#contracts/proof-types.js';
import type { PolicyOutcome, PolicyWrite, Refusal } from './policy-requests.js';

/** Which parts of the node the policy in force cannot do without. */
export type Needs = { readonly dataplane: boolean; readonly dns: boolean; readonly servicePlane: boolean };

export type PerformanceMode = {
  readonly enabled: boolean;
  readonly source: 'local' | 'cluster' | null;
  /** Counts the writes; 0 while the built-in default applies. */
  readonly revision: number;
};
export type PerformanceModeWrite = {
  readonly enabled: boolean;
  readonly author: string;
  /** The revision that must be stored now; left out for any. Else `precondition_failed`. */
  readonly expectedRevision?: number;
};

/** Everything that is asked over the bus, and what comes back besides a `Refusal`. */
export type Exchanges = {
  'policy.write': { readonly asks: { readonly write: PolicyWrite }; readonly outcome: PolicyOutcome };
  'performance_mode.write': {
    readonly asks: { readonly write: PerformanceModeWrite };
    readonly outcome: { readonly kind: 'changed'; readonly mode: PerformanceMode };
  };
  /** Fills the idle slot of the datapath, and proves it by the sample (B5). */
  'program.stage': {
    readonly asks: { readonly program: Program; readonly sample: Sampling; readonly generation: number };
    readonly outcome: { readonly kind: 'staged'; readonly lines: number; readonly proof: Proof };
  };
  /** Puts what is staged in force. Answered once it is, also when the datapath had to be opened anew for it. */
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

/** Something that became so. */
export type Fact =
  | {
      readonly type: 'policy.activated';
      /** Null: none is active, and `policy.fallback` decides. */
      readonly record: PolicyRecord | null;
      readonly generation: number;
      /** Null without a dataplane. */
      readonly epoch: number | null;
      readonly needs: Needs;
      readonly lookups: Lookups;
      readonly inspection: InspectionImage;
    }
  /** What the dataplane is to enforce from now on, whatever it is doing at the moment. */
  | {
      readonly type: 'program.desired';
      readonly program: Program;
      readonly sample: ProofSample;
      readonly generation: number;
    }
  /** What is staged judges every packet of its sample as the policy says, or not (B5). */
  | { readonly type: 'program.proved'; readonly generation: number; readonly proof: Proof }
  | { readonly type: 'program.disproved'; readonly generation: number; readonly detail: string }
  | { readonly type: 'program.rejected'; readonly generation: number; readonly refusal: Refusal }
  /** Opened over what an earlier process left in force in the kernel; 0: nothing. */
  | { readonly type: 'dataplane.adopted'; readonly generation: number }
  /** Attached without knowing a program: whoever has one is to say so. */
  | { readonly type: 'dataplane.attached' }
  | { readonly type: 'dataplane.enforcing'; readonly generation: number; readonly epoch: number }
  | { readonly type: 'dataplane.lost'; readonly reason: string }
  | { readonly type: 'dataplane.closed' }
  | { readonly type: 'performance_mode.changed'; readonly mode: PerformanceMode }
  | { readonly type: 'node.draining' }
  /** No write is under way any more. */
  | { readonly type: 'policy.drained' }
  | { readonly type: 'dataplane.release_requested' };

export type Message = RequestMessage | AnswerMessage | Fact;
