import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import { Refused } from '#bus/refused.js';
import {
  type Adoption,
  type Attachment,
  CapacityExceeded,
  type Datapath,
  type Flipped,
  ProofFailed,
} from '#contracts/datapath/datapath.js';
import { matchesInterface } from '#contracts/datapath/datapath-options.js';
import { renamedSentence } from '#contracts/datapath/renamed-interface.js';
import { STORED, type Standing } from '#contracts/datapath/unconfirmed.js';
import type { Program } from '#contracts/policy/program.js';
import type { Proof, ProofSamples } from '#contracts/policy/proof-types.js';
import { refusal } from '#contracts/refusal.js';
import type { MemberDistribution } from '#kubernetes/distribution/member-distribution.js';
import { mismatchSentence } from '#policy/proof/mismatch-sentence.js';
import { dataplaneChart } from '#statecharts/dataplane.chart.js';
import type { Adopted } from '#statecharts/dataplane.setup.js';
import { type Attached, interfacesChart } from '#statecharts/interfaces.chart.js';
import { type Desired, swapChart } from '#statecharts/swap.chart.js';
import { configuredBy } from './configured.js';
import { settingsActor } from './settings.actor.js';

export type DataplanePorts = {
  /** If the worker thread of the datapath ends, the next call of `open` starts a new thread. */
  readonly datapath: Datapath;
  /** The interface names in the configuration. A name may end in the wildcard `*`. */
  readonly interfaces: readonly string[];
  /** Called with the error after each failure to open the datapath. */
  readonly openFailed?: ((failure: unknown) => void) | undefined;
  /** Called with each warning of a check of the interfaces that the previous check did not report. */
  readonly warned?: ((warning: string) => void) | undefined;
  /**
   * Called after the datapath was opened. The datapath enforces no other policy before the returned promise
   * resolves.
   */
  readonly adopted?: (adoption: Adoption) => Promise<void>;
  /** Returns whether a policy that is put in force is stored in the store, and whether it is unconfirmed. */
  readonly standing?: (generation: number) => Promise<Standing>;
  /**
   * Closes the DNS proxy and the service plane. The actor calls it before it closes the datapath, so that the
   * datapath thread can still count their last decisions as hits of the rules.
   */
  readonly beforeClose?: () => Promise<unknown>;
  /**
   * Gives the members of Kubernetes selectors (addresses) to an opened datapath; null on a node without
   * Kubernetes.
   */
  readonly members?: Pick<MemberDistribution, 'datapathOpened' | 'flipped' | 'capacityExceeded'> | null;
};

/**
 * Creates the dataplane actor: its statechart, which acts on a datapath. `ports` is null if the configuration
 * has no `dataplane` section; the statechart then starts no child actor that needs a datapath.
 */
export function dataplaneActor(bus: Bus<Message>, ports: DataplanePorts | null) {
  const datapath = (): Datapath => configuredBy('dataplane', ports).datapath;
  let interfaces = ports?.interfaces ?? [];
  let known: readonly string[] = [];
  const reviewed = async (attachments: readonly Attachment[]): Promise<Attached> => {
    const { missing, unmatched, renamed } = withoutInterface(interfaces, attachments);
    const { faults, warnings } = await datapath().review();
    const noInterface = unmatched.map((pattern) => `no interface has a name like ${pattern} now`);
    for (const warning of warnings) if (!known.includes(warning)) ports?.warned?.(warning);
    known = warnings;
    return { missing, renamed: renamed.map(renamedSentence), faults, warnings: [...warnings, ...noInterface] };
  };
  const attach = fromPromise<Attached>(async () => reviewed(await datapath().attach()));
  const settings = settingsActor(bus, 'interfaces.change', async ({ names, renamed }) => {
    const former = interfaces;
    // `review`, which checks the interfaces, fails if the datapath is not open. The datapath then gets the
    // new interface names when it opens.
    const before = await datapath()
      .review()
      .catch(() => null);
    const attachments = await datapath().police(names, renamed);
    interfaces = names;
    if (attachments === null) return null;
    const attached = await reviewed(attachments).catch(() => null);
    // The new interface names are in force even if this review fails. The event makes the statechart attach
    // and review again.
    if (attached === null) return { type: 'datapath.changed', change: { type: 'review_changed' } };
    const added = attached.faults.filter((fault) => before?.faults.includes(fault) === false);
    if (added.length > 0) {
      await datapath().police(former, renamed === 'release' ? 'restore' : 'keep');
      interfaces = former;
      throw new Error(added.join('; '));
    }
    return { type: 'interfaces.attached', attached };
  });
  const publish = (_: unknown, { message }: { message: Message | null }): void => {
    if (message !== null) bus.publish(message);
  };
  return dataplaneChart.provide({
    actions: { publish },
    actors: {
      attach,
      interfaces: interfacesChart.provide({ actors: { attach, settings } }),
      swap: swapChart.provide({ actions: { publish }, actors: swapActors(datapath, ports) }),
      probe: fromPromise(() => datapath().probe()),
      open: fromPromise<Adopted>(async () => {
        const adoption = await datapath()
          .open()
          .catch((failure: unknown) => {
            ports?.openFailed?.(failure);
            throw failure;
          });
        await ports?.adopted?.(adoption);
        await ports?.members?.datapathOpened();
        const { inForce } = adoption;
        return { generation: inForce?.generation ?? 0, sinceMs: inForce?.sinceMs ?? null };
      }),
      watch: fromCallback<EventObject>(({ sendBack }) =>
        datapath().watch((change) => {
          if (change.type !== 'forwarding_changed') sendBack({ type: 'datapath.changed', change });
        }),
      ),
      close: fromPromise(async () => {
        await ports?.beforeClose?.();
        await datapath().close();
      }),
    },
  });
}

function swapActors(datapath: () => Datapath, ports: DataplanePorts | null) {
  const { members, standing = async () => STORED } = ports ?? {};
  let staged: Standing = STORED;
  return {
    stage: fromPromise<{ lines: number }, Desired>(async ({ input: { program, generation } }) => {
      staged = await standing(generation);
      return datapath()
        .stage(program, generation, staged)
        .catch((failure: unknown) => {
          if (failure instanceof CapacityExceeded) members?.capacityExceeded();
          throw capacityRefused(failure);
        });
    }),
    prove: fromPromise<Proof, Desired>(async ({ input }) => {
      const samples = await samplesOf(input);
      return datapath()
        .prove(samples)
        .catch((failure: unknown) => {
          throw proofRefused(failure, input.program);
        });
    }),
    flip: fromPromise<Flipped, Desired>(async ({ input: { generation } }) => {
      // Since the policy was staged, the store has committed the write. If the store has a newer policy by
      // now, that policy is put in force directly afterwards.
      const flipped = await datapath().flip(await standing(generation).catch(() => staged));
      members?.flipped(flipped.uncompiled);
      return flipped;
    }),
    unstage: fromPromise(() => datapath().unstage()),
  };
}

/**
 * Returns the configured names that match no attached interface. `missing`: names without `*`. `unmatched`:
 * names with `*`, which may match no interface, for example on a Kubernetes node without pods. `renamed`:
 * attached interfaces that no configured name matches since they were renamed. Their former names are not in
 * `missing`.
 */
export function withoutInterface(patterns: readonly string[], attachments: readonly Attachment[]) {
  const without = patterns.filter(
    (pattern) => !attachments.some(({ interface: name }) => matchesInterface([pattern], name)),
  );
  const renamed = attachments.flatMap(({ interface: to, renamedFrom }) =>
    renamedFrom === null ? [] : { from: renamedFrom, to },
  );
  return {
    renamed,
    missing: without.filter((name) => !name.endsWith('*') && !renamed.some(({ from }) => from === name)),
    unmatched: without.filter((name) => name.endsWith('*')),
  };
}

class CapacityRefused extends Refused {
  readonly code = 'capacity_exceeded';
}

function capacityRefused(failure: unknown): unknown {
  if (!(failure instanceof CapacityExceeded)) return failure;
  return new CapacityRefused(refusal('capacity_exceeded', failure.message));
}

/**
 * Waits for the proof samples (packets that test a program before its activation). Throws a refusal if the
 * computation of the samples failed, because a program is never activated without a proof (B5).
 */
async function samplesOf({ samples }: Desired): Promise<ProofSamples> {
  try {
    return await samples;
  } catch (failure) {
    throw new Refused(refusal('feature_unavailable', failure instanceof Error ? failure.message : String(failure)));
  }
}

class ProofRefused extends Refused {
  readonly code = 'proof_failed';
}

function proofRefused(failure: unknown, { ruleNames }: Program): unknown {
  if (!(failure instanceof ProofFailed)) return failure;
  return new ProofRefused(refusal('proof_failed', mismatchSentence(failure.mismatch, ruleNames)));
}
