import type { Field, StructLayout } from '#dataplane/abi/btf.js';

/** Converts a struct in the buffer `from` and writes it to the buffer `to`. The offsets are in bytes. */
export type Conversion = (from: DataView, fromAt: number, to: DataView, toAt: number) => void;

type Piece = { readonly from: number; readonly to: number; readonly bytes: number };

/**
 * Returns a function that converts structs from one layout to another. Members with the same name
 * correspond. A member that the source layout does not have becomes 0. A member that is wider in the target
 * is extended with zeros. A member that is narrower keeps its low bytes (little-endian).
 */
export function conversion(from: StructLayout, to: StructLayout): Conversion {
  const pieces = mergeAdjacent(
    Object.entries(to.fields).flatMap(([name, field]) => {
      const source = from.fields[name];
      if (source === undefined) return [];
      const bytes = Math.min(source.size, field.size);
      return Array.from({ length: Math.min(source.count, field.count) }, (_, index) => ({
        from: source.offset + index * source.size,
        to: field.offset + index * field.size,
        bytes,
      }));
    }),
  );
  return (source, sourceAt, target, targetAt) => {
    bytesOf(target, targetAt, to.size).fill(0);
    for (const piece of pieces) {
      bytesOf(target, targetAt + piece.to, piece.bytes).set(bytesOf(source, sourceAt + piece.from, piece.bytes));
    }
  };
}

/** Merges pieces that are adjacent in both layouts, so that a conversion needs fewer copies. */
function mergeAdjacent(pieces: Piece[]): Piece[] {
  const rows: Piece[] = [];
  for (const piece of pieces.sort((a, b) => a.to - b.to)) {
    const last = rows.at(-1);
    if (last !== undefined && last.to + last.bytes === piece.to && last.from + last.bytes === piece.from) {
      rows[rows.length - 1] = { ...last, bytes: last.bytes + piece.bytes };
    } else {
      rows.push(piece);
    }
  }
  return rows;
}

function bytesOf(view: DataView, at: number, length: number): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset + at, length);
}

/** The state of a flow: `half_open`, or established (`flows`). */
export type FlowTable = 'flows' | 'half_open';

/**
 * Offset of the active word in the field `judgement`, in bytes. This word identifies the policy that
 * classified the flow.
 */
const ACTIVE_WORD = 4;
/** Returns the layout of a `struct flow` that its statistics, a `struct tally`, directly follow. */
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
    // classifies the next packet of the flow again. If all of `judgement` were 0, the datapath would treat
    // the flow as decided by no rule, and pass its replies.
    if (!samePolicy) target.setUint32(targetAt + verdictWordAt.offset + ACTIVE_WORD, 0, true);
  };
}

function fieldOf(layout: StructLayout, name: string): Field {
  const field = layout.fields[name];
  if (field === undefined)
    throw new RangeError(`convert flows of the previous process: a struct layout has no field ${name}`);
  return field;
}
