import type { Field, StructLayout } from '#dataplane/abi/btf.js';
import { type Conversion, conversion } from './struct-conversion.js';

/** The state of a flow: `half_open`, or established (`flows`). */
export type FlowTable = 'flows' | 'half_open';

/**
 * Offset of the active word in the field `judgement`, in bytes. This word identifies the policy that
 * classified the flow.
 */
const ACTIVE_WORD = 4;
/** Returns the layout of a `struct flow` that is directly followed by its `struct tally`. */
export function withTally(flow: StructLayout, tally: StructLayout): StructLayout {
  const behind = Object.entries(tally.fields).map(
    ([name, field]) => [name, { ...field, offset: flow.size + field.offset }] as const,
  );
  return { size: flow.size + tally.size, fields: { ...flow.fields, ...Object.fromEntries(behind) } };
}

/**
 * Returns a function that converts flows from one layout to another. If `samePolicy` is true, a flow keeps
 * its verdict. Otherwise the datapath classifies the next packet of the flow again, unless the flow is
 * foreign (opened from an interface that is not policed).
 */
export function flowConversion(from: StructLayout, to: StructLayout, samePolicy: boolean): Conversion {
  const convert = conversion(from, to);
  const verdictWordAt = fieldOf(to, 'judgement');
  return (source, sourceAt, target, targetAt) => {
    convert(source, sourceAt, target, targetAt);
    // Set only the active word in `judgement` to 0. No policy in force has this word, so the datapath
    // classifies the next packet of the flow again. If all of `judgement` were 0, the flow would count as
    // foreign, and its replies would pass without a rule.
    if (!samePolicy) target.setUint32(targetAt + verdictWordAt.offset + ACTIVE_WORD, 0, true);
  };
}

function fieldOf(layout: StructLayout, name: string): Field {
  const field = layout.fields[name];
  if (field === undefined) throw new RangeError(`convert flows: the layout has no field ${name}`);
  return field;
}
