import type { StructLayout } from '#dataplane/abi/btf.js';

/** Writes a struct as `to` lays it out, from one that was laid out otherwise. */
export type Conversion = (from: DataView, fromAt: number, to: DataView, toAt: number) => void;

type Piece = { readonly from: number; readonly to: number; readonly bytes: number };

/**
 * Members go by name; what the other does not have is 0. A member that became wider is extended with 0, one that became
 * narrower keeps its low bytes, as numbers of little-endian machines do.
 */
export function conversion(from: StructLayout, to: StructLayout): Conversion {
  const pieces = joined(
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

/** Equal members in an equal row are one piece. */
function joined(pieces: Piece[]): Piece[] {
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
