/**
 * A member of a struct: its offset from the start of the struct, and the size of one element, both in bytes.
 * `count` is 1 unless the member is an array.
 */
export type Field = { readonly offset: number; readonly size: number; readonly count: number };
/**
 * The members of a struct by name; a member of a nested struct is named `outer.inner`. If a map value is a
 * plain number, the layout has one member, with the empty string as its name.
 */
export type StructLayout = { readonly size: number; readonly fields: Readonly<Record<string, Field>> };
/** The layout of the values of a map without BTF type information, such as a ring buffer. */
export const NO_LAYOUT: StructLayout = { size: 0, fields: {} };

const MAGIC = 0xeb9f;
const KIND = {
  int: 1,
  array: 3,
  struct: 4,
  union: 5,
  enum: 6,
  typedef: 8,
  volatile: 9,
  const: 10,
  restrict: 11,
  functionPrototype: 13,
  variable: 14,
  dataSection: 15,
  declarationTag: 17,
  enum64: 19,
} as const;

type Member = { readonly name: string; readonly type: number; readonly offset: number };
type BtfType = {
  readonly kind: number;
  /**
   * For a struct, union, enum or integer: its size in bytes. For a typedef or a qualifier such as `const`:
   * the id of the BTF type that the typedef or qualifier refers to.
   */
  readonly sizeOrType: number;
  readonly members: readonly Member[];
  readonly array: { readonly type: number; readonly count: number } | undefined;
};

/** The BTF type information of a BPF object or of a loaded map (Documentation/bpf/btf.rst of the kernel). */
export class Btf {
  /** BTF types by id. Type 0 is `void`; the BTF bytes do not contain it. */
  readonly #types: BtfType[] = [{ kind: 0, sizeOrType: 0, members: [], array: undefined }];

  constructor(bytes: Uint8Array) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (view.getUint16(0, true) !== MAGIC)
      throw new RangeError('read BTF type information: the bytes have no BTF header');
    const header = view.getUint32(4, true);
    const types = header + view.getUint32(8, true);
    const end = types + view.getUint32(12, true);
    const strings = header + view.getUint32(16, true);
    const nameAt = (offset: number): string => {
      const from = strings + offset;
      return new TextDecoder().decode(bytes.subarray(from, bytes.indexOf(0, from)));
    };
    for (let at = types; at < end; ) {
      const info = view.getUint32(at + 4, true);
      const kind = (info >>> 24) & 0x1f;
      const length = info & 0xffff;
      const isStruct = kind === KIND.struct || kind === KIND.union;
      const body = at + 12;
      this.#types.push({
        kind,
        sizeOrType: view.getUint32(at + 8, true),
        members: Array.from({ length: isStruct ? length : 0 }, (_, index) => ({
          name: nameAt(view.getUint32(body + 12 * index, true)),
          type: view.getUint32(body + 12 * index + 4, true),
          // If the BTF kind flag is set, the upper 8 bits of the offset are the size of a bit field. Mask off
          // this size, because structs of maps have no bit fields.
          offset: (view.getUint32(body + 12 * index + 8, true) & 0xff_ffff) / 8,
        })),
        array:
          kind === KIND.array ? { type: view.getUint32(body, true), count: view.getUint32(body + 8, true) } : undefined,
      });
      at = body + bodyBytes(kind, length);
    }
  }

  layoutOf(id: number): StructLayout {
    if (id === 0) return NO_LAYOUT;
    const fields: Record<string, Field> = {};
    this.#collect(id, '', 0, 1, fields);
    return { size: this.#sizeOf(id), fields };
  }

  #collect(id: number, name: string, offset: number, count: number, into: Record<string, Field>): void {
    const { kind, sizeOrType, members, array } = this.#typeOf(id);
    if (array !== undefined) {
      this.#collect(array.type, name, offset, count * array.count, into);
    } else if (isAlias(kind)) {
      this.#collect(sizeOrType, name, offset, count, into);
    } else if (members.length > 0 && count === 1) {
      for (const member of members) {
        this.#collect(
          member.type,
          name === '' ? member.name : `${name}.${member.name}`,
          offset + member.offset,
          1,
          into,
        );
      }
    } else {
      into[name] = { offset, size: this.#sizeOf(id), count };
    }
  }

  #sizeOf(id: number): number {
    const { kind, sizeOrType, array } = this.#typeOf(id);
    if (array !== undefined) return array.count * this.#sizeOf(array.type);
    return isAlias(kind) ? this.#sizeOf(sizeOrType) : sizeOrType;
  }

  #typeOf(id: number): BtfType {
    const type = this.#types[id];
    if (type === undefined) throw new RangeError(`read BTF type information: no type has the id ${id}`);
    return type;
  }
}

function isAlias(kind: number): boolean {
  return kind >= KIND.typedef && kind <= KIND.restrict;
}

function bodyBytes(kind: number, length: number): number {
  switch (kind) {
    case KIND.int:
    case KIND.variable:
    case KIND.declarationTag:
      return 4;
    case KIND.array:
      return 12;
    case KIND.struct:
    case KIND.union:
    case KIND.dataSection:
    case KIND.enum64:
      return 12 * length;
    case KIND.enum:
    case KIND.functionPrototype:
      return 8 * length;
    default:
      return 0;
  }
}
