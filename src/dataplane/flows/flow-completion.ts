import { OPENED_SHIFT } from '#contracts/datapath-numbers.js';
import type { StructLayout } from '#dataplane/abi/btf.js';
import { HIT_REF_BYTES, HIT_REF_OFFSETS } from '#dataplane/abi/hit.js';

const REF_WORDS = HIT_REF_BYTES / 4;
const RANK_SHIFT = 4;
/** Ages from here on mean that `opened` is slightly ahead of the clock, which wraps at 16 bits. */
const LONG_AGO = 0xc000;
/** `hit_check` of a flow without a hit: it is known that no rule counts this flow. */
const NOBODY = 1;

const FIELDS = ['judgement', 'opened', 'opened_ns', 'hit', 'hit_check'] as const;
/** Offsets in bytes of the needed fields in `struct flow` with its `struct tally` behind it. */
type Offsets = Readonly<Record<(typeof FIELDS)[number], number>>;

/** Undefined for layouts before 4, in which a flow is always complete. */
export function settlingOffsets({ fields }: StructLayout): Offsets | undefined {
  const found = FIELDS.map((name) => [name, fields[name]?.offset] as const);
  return found.some(([, offset]) => offset === undefined) ? undefined : (Object.fromEntries(found) as Offsets);
}

/**
 * Completes in place the fields of a tally that the first packet leaves to the first flush of counters, as
 * `complete_tally` of `bpf/flow/flush.h` does. `ranks`: the words of `rank_hits` that classified the flow;
 * `nowNs` reads the monotonic clock.
 */
export function settle(flow: DataView, at: Offsets, ranks: Uint32Array, nowNs = monotonicNs): void {
  if (flow.getBigUint64(at.opened_ns, true) === 0n) {
    flow.setBigUint64(at.opened_ns, openedAt(flow.getUint16(at.opened, true), nowNs()), true);
  }
  if (flow.getBigUint64(at.hit, true) !== 0n) return;
  const activeWord = flow.getUint32(at.judgement + 4, true);
  const rank = flow.getUint32(at.judgement, true) >>> RANK_SHIFT;
  const capacity = ranks.length / REF_WORDS / 2;
  const place = ((activeWord & 1) * capacity + rank) * REF_WORDS;
  const hit = activeWord === 0 || rank >= capacity ? 0 : (ranks[place + HIT_REF_OFFSETS.hit / 4] as number);
  flow.setUint32(at.hit, hit, true);
  flow.setUint32(at.hit_check, hit === 0 ? NOBODY : (ranks[place + HIT_REF_OFFSETS.check / 4] as number), true);
}

function monotonicNs(): bigint {
  return process.hrtime.bigint();
}

function openedAt(opened: number, nowNs: bigint): bigint {
  const now = nowNs >> BigInt(OPENED_SHIFT);
  const ago = (Number(now & 0xffffn) - opened) & 0xffff;
  return (now - BigInt(ago < LONG_AGO ? ago : 0)) << BigInt(OPENED_SHIFT);
}
