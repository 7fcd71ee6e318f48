import { u32At } from '#arrays/read.js';
import { OPENED_SHIFT } from '#contracts/datapath/datapath-numbers.js';
import type { StructLayout } from '#dataplane/abi/btf.js';
import { HIT_REF_BYTES, HIT_REF_OFFSETS } from '#dataplane/abi/hit.js';

const REF_WORDS = HIT_REF_BYTES / 4;
const RANK_SHIFT = 4;
/**
 * The 16-bit time `opened` wraps. If the computed age of a flow reaches this value, `opened` is in truth
 * slightly later than `nowNs`, and the true age is 0.
 */
const LONG_AGO = 0xc000;
/**
 * The value of `hit_check` if no rule counts this flow; `hit` is 0 then. While the rule is not determined
 * yet, `hit_check` is 0.
 */
const NO_RULE = 1;

const FIELDS = ['judgement', 'opened', 'opened_ns', 'hit', 'hit_check'] as const;
/**
 * Offsets in bytes of the fields that `completeFlow` uses, in a `struct flow` directly followed by its
 * `struct tally`.
 */
type Offsets = Readonly<Record<(typeof FIELDS)[number], number>>;

/**
 * Returns the offsets of the fields in `FIELDS` in a layout of flows. Returns undefined if a field is
 * missing. Fields are missing in layout versions before 4, whose flows are always complete.
 */
export function completionOffsets({ fields }: StructLayout): Offsets | undefined {
  const found = FIELDS.map((name) => [name, fields[name]?.offset] as const);
  return found.some(([, offset]) => offset === undefined) ? undefined : (Object.fromEntries(found) as Offsets);
}

/**
 * Completes in place the fields of `struct tally` (the statistics of a flow) that the datapath may leave at 0
 * until the first flush of the flow's counters. The result must equal that of `complete_tally` in
 * `bpf/flow/flush.h`. `ranks` is the content of the map `rank_hits` of the datapath that classified the flow.
 * `nowNs` reads the monotonic clock.
 */
export function completeFlow(flow: DataView, at: Offsets, ranks: Uint32Array, nowNs = monotonicNs): void {
  if (flow.getBigUint64(at.opened_ns, true) === 0n) {
    flow.setBigUint64(at.opened_ns, openedAt(flow.getUint16(at.opened, true), nowNs()), true);
  }
  if (flow.getBigUint64(at.hit, true) !== 0n) return;
  const activeWord = flow.getUint32(at.judgement + 4, true);
  const rank = flow.getUint32(at.judgement, true) >>> RANK_SHIFT;
  const capacity = ranks.length / REF_WORDS / 2;
  const place = ((activeWord & 1) * capacity + rank) * REF_WORDS;
  const hit = activeWord === 0 || rank >= capacity ? 0 : u32At(ranks, place + HIT_REF_OFFSETS.hit / 4);
  flow.setUint32(at.hit, hit, true);
  flow.setUint32(at.hit_check, hit === 0 ? NO_RULE : u32At(ranks, place + HIT_REF_OFFSETS.check / 4), true);
}

function monotonicNs(): bigint {
  return process.hrtime.bigint();
}

function openedAt(opened: number, nowNs: bigint): bigint {
  const now = nowNs >> BigInt(OPENED_SHIFT);
  const ago = (Number(now & 0xffffn) - opened) & 0xffff;
  return (now - BigInt(ago < LONG_AGO ? ago : 0)) << BigInt(OPENED_SHIFT);
}
