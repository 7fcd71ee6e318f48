import type { StructLayout } from '#dataplane/abi/btf.js';

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
