import { firstValueFrom } from 'rxjs';
import type { ChangeTerms, PendingWrite } from '#contracts/policy/pending-change.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import type { PolicyWrite, WriteTerms } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';
import { refusal } from '#contracts/refusal.js';
import type { PreparedWrite } from '#statecharts/write.chart.js';
import type { PolicyStore } from '#store/store-types.js';

const NO_CLUSTER = refusal(
  'no_cluster',
  'the configuration of this node has no cluster section, so that there is no roll-out',
);
/** The number of nodes that the warning about a roll-out names. */
const NAMED_NODES = 10;

export type PendingWritePorts = {
  readonly policies: PolicyStore;
  /**
   * Chooses the nodes that enforce a roll-out of `share` percent first, with this node among them. Null on a
   * single node.
   */
  readonly chooseNodes: ((share: number) => Promise<readonly string[]>) | null;
  /** Whether this node has a dataplane that enforces policies. */
  readonly enforced: boolean;
  /** The generation of the policy in force; 0 if none. Omitted: that of the store. */
  readonly generationInForce?: () => number;
};

/**
 * Returns a refusal if a roll-out is requested without a cluster, or if the present pending change forbids
 * the write. Otherwise returns null.
 */
export async function refusalWhilePending(ports: PendingWritePorts, { terms }: PolicyWrite): Promise<Refusal | null> {
  const { policies, chooseNodes } = ports;
  if (terms?.kind === 'rollout' && chooseNodes === null) return NO_CLUSTER;
  const pending = await firstValueFrom(policies.pending);
  if (pending === null) return null;
  const { generation, by } = pending;
  if (pending.terms.kind === 'rollout')
    return refusal(
      'rollout_in_progress',
      `generation ${generation}, which ${by} wrote, is being rolled out; complete or revert it first`,
    );
  if (terms?.kind !== 'rollout') return null;
  return refusal(
    'change_pending',
    `generation ${generation}, which ${by} wrote, waits for its confirmation; confirm or revert it first`,
  );
}

/**
 * Returns a refusal if the kernel does not enforce the stored policy: the kernel could not revert an
 * unconfirmed policy to it.
 */
async function refusalWithoutBase({
  policies,
  enforced,
  generationInForce,
}: PendingWritePorts): Promise<Refusal | null> {
  const stored = await policies.generation();
  const inForce = generationInForce?.() ?? stored;
  if (!enforced || inForce === stored) return null;
  return refusal(
    'dataplane_unavailable',
    `generation ${stored} of the store is not in force, so a write cannot be reverted to it; write without confirm_within, or try again later`,
  );
}

/**
 * Makes a prepared write an unconfirmed change, with options such as the time for the confirmation. Refuses a
 * write that does not change the policy in force, or that could not be reverted.
 */
export async function withTerms(
  ports: PendingWritePorts,
  prepared: PreparedWrite,
  terms: WriteTerms,
  written: Omit<PendingWrite, 'terms'>,
): Promise<PreparedWrite | Refusal> {
  if (prepared.compiled === null)
    return refusal(
      'nothing_activated',
      'the write does not change the policy in force, so there would be nothing to revert',
    );
  const unrevertible = terms.kind === 'confirm' && ports.chooseNodes === null ? await refusalWithoutBase(ports) : null;
  if (unrevertible !== null) return unrevertible;
  const stored = await storedTerms(ports, terms);
  if (stored === null) return NO_CLUSTER;
  const { change, outcome } = prepared;
  return {
    ...prepared,
    change: { ...change, pending: { terms: stored, ...written } },
    outcome: { ...outcome, warnings: [...outcome.warnings, warningOf(stored)] },
  };
}

function warningOf(terms: ChangeTerms): Warning {
  if (terms.kind === 'confirm')
    return {
      pointer: '',
      code: 'unconfirmed',
      message: `The write is reverted after ${terms.within_ms / 1_000} s, unless it is confirmed (\`weir policy confirm\`).`,
    };
  const nodes = `${terms.nodes.slice(0, NAMED_NODES).join(', ')}${terms.nodes.length > NAMED_NODES ? ', …' : ''}`;
  return {
    pointer: '',
    code: 'rolling_out',
    message: `Nodes that enforce the write first: ${nodes}. All nodes enforce it after ${terms.hold_ms / 1_000} s.`,
  };
}

async function storedTerms({ chooseNodes }: PendingWritePorts, terms: WriteTerms): Promise<ChangeTerms | null> {
  if (terms.kind === 'confirm') return { kind: 'confirm', within_ms: terms.withinMs };
  if (chooseNodes === null) return null;
  const { share, holdMs } = terms;
  return { kind: 'rollout', share, hold_ms: holdMs, nodes: await chooseNodes(share) };
}
