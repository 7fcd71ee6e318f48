import { deserialize, serialize } from 'node:v8';
import { itemAt } from '#arrays/read.js';
import type { SourceGroupConfig } from '#contracts/policy/policy-document.js';
import type { Group, Policy, Rule } from '#contracts/policy/policy-model.js';
import type { PolicyImage } from '#contracts/service-plane/inspection-image.js';
import { normaliseGroup } from '#policy/model/normalise.js';

/**
 * The maximum number of chunks (shared buffers) of one policy image. If a policy needs more chunks, `write`
 * copies all its texts into one new chunk.
 */
const MAX_CHUNKS = 16;

/** A source group without its rules, and the position of the group's JSON text in a chunk, in bytes. */
type Head = Omit<Group, 'rules'> & { readonly chunk: number; readonly from: number; readonly to: number };
type Heads = Pick<Policy, 'default'> & { readonly groups: readonly Head[] };
type Place = { readonly chunk: Uint8Array; readonly from: number };

/**
 * Writes policies into shared memory for other threads. A later `write` does not copy the text of an
 * unchanged group again.
 */
export class PolicyWriter {
  readonly #places = new WeakMap<Uint8Array, Place>();

  /** Writes a policy. `texts`: the JSON text of each group, in the order of `groups`. */
  write({ groups, default: byDefault }: Policy, texts: readonly Uint8Array[]): PolicyImage {
    this.#place(texts.filter((text) => !this.#places.has(text)));
    if (this.#chunksOf(texts).size > MAX_CHUNKS) this.#place(texts);
    const chunks = [...this.#chunksOf(texts)];
    const numbers = new Map(chunks.map((chunk, number) => [chunk, number]));
    const heads = groups.map(({ rules: _, ...head }, index): Head => {
      const text = itemAt(texts, index);
      const { chunk, from } = this.#places.get(text) as Place;
      return { ...head, chunk: numbers.get(chunk) as number, from, to: from + text.length };
    });
    const written = serialize({ default: byDefault, groups: heads } satisfies Heads);
    const held = shared(written.length);
    held.set(written);
    return { heads: held, chunks };
  }

  #place(texts: readonly Uint8Array[]): void {
    const chunk = shared(texts.reduce((sum, { length }) => sum + length, 0));
    let from = 0;
    for (const text of texts) {
      chunk.set(text, from);
      this.#places.set(text, { chunk, from });
      from += text.length;
    }
  }

  #chunksOf(texts: readonly Uint8Array[]): ReadonlySet<Uint8Array> {
    return new Set(texts.map((text) => (this.#places.get(text) as Place).chunk));
  }
}

function shared(bytes: number): Uint8Array {
  return new Uint8Array(new SharedArrayBuffer(bytes));
}

/**
 * Reads a policy from shared memory. Parses the rules of a group on first use. If the text and mode of a
 * group are unchanged, the group reuses the rules that were parsed for the policy `before`.
 */
export function readPolicy({ heads, chunks }: PolicyImage, before: Policy | null): Policy {
  const { default: byDefault, groups } = deserialize(heads) as Heads;
  const known = new Map<string, ReadGroup>();
  for (const group of before?.groups ?? []) if (group instanceof ReadGroup && group.isRead) known.set(group.id, group);
  const buffers = chunks.map(({ buffer, byteOffset, length }) => Buffer.from(buffer, byteOffset, length));
  return {
    default: byDefault,
    groups: groups.map((head) => {
      const text = itemAt(buffers, head.chunk).subarray(head.from, head.to);
      return new ReadGroup(head, text, known.get(head.id));
    }),
  };
}

class ReadGroup implements Group {
  readonly id: Group['id'];
  readonly pointer: Group['pointer'];
  readonly mode: Group['mode'];
  readonly sources: Group['sources'];
  readonly selectors: Group['selectors'];
  readonly defaultAction: Group['defaultAction'];
  readonly #text: Buffer;
  #rules: readonly Rule[] | null = null;

  constructor(head: Head, text: Buffer, before: ReadGroup | undefined) {
    const { id, pointer, mode, sources, selectors, defaultAction } = head;
    this.id = id;
    this.pointer = pointer;
    this.mode = mode;
    this.sources = sources;
    this.selectors = selectors;
    this.defaultAction = defaultAction;
    this.#text = text;
    if (before?.mode === mode && before.#text.equals(text)) this.#rules = before.#rules;
  }

  get isRead(): boolean {
    return this.#rules !== null;
  }

  get rules(): readonly Rule[] {
    this.#rules ??= normaliseGroup(
      JSON.parse(this.#text.toString()) as SourceGroupConfig,
      this.pointer,
      this.mode,
      // Without this option, `0.0.0.0/0` would also match IPv6 on a node with IPv6 policies. A node without
      // them has no IPv6 packets to decide, so the option changes nothing there.
      { ipv6: true },
    ).rules;
    return this.#rules;
  }
}
