import { deserialize, serialize } from 'node:v8';
import type { SourceGroupConfig } from '#policy/document.js';
import type { PolicyImage } from '#policy/inspection.js';
import type { Group, Policy, Rule } from '#policy/model.js';
import { normaliseGroup } from '#policy/normalise.js';

/** A group without its rules, and how long its text is. */
type Head = Omit<Group, 'rules'> & { readonly bytes: number };
type Heads = Pick<Policy, 'default'> & { readonly groups: readonly Head[] };

/** `texts` are those of the groups, in their order. */
export function writePolicy({ groups, default: byDefault }: Policy, texts: readonly Uint8Array[]): PolicyImage {
  const heads = groups.map(({ rules: _, ...head }, index): Head => ({ ...head, bytes: texts[index]?.length ?? 0 }));
  const joined = shared(texts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const text of texts) {
    joined.set(text, at);
    at += text.length;
  }
  const written = serialize({ default: byDefault, groups: heads } satisfies Heads);
  const held = shared(written.length);
  held.set(written);
  return { heads: held, texts: joined };
}

function shared(bytes: number): Uint8Array {
  return new Uint8Array(new SharedArrayBuffer(bytes));
}

/** The rules of a group are read when they are asked for first, unless they stood in the policy `before` and were read there. */
export function readPolicy({ heads, texts }: PolicyImage, before: Policy | null): Policy {
  const { default: byDefault, groups } = deserialize(heads) as Heads;
  const known = new Map<string, ReadGroup>();
  for (const group of before?.groups ?? []) if (group instanceof ReadGroup && group.isRead) known.set(group.id, group);
  let at = texts.byteOffset;
  return {
    default: byDefault,
    groups: groups.map((head) => {
      const text = Buffer.from(texts.buffer, at, head.bytes);
      at += head.bytes;
      return new ReadGroup(head, text, known.get(head.id));
    }),
  };
}

class ReadGroup implements Group {
  readonly id: Group['id'];
  readonly pointer: Group['pointer'];
  readonly mode: Group['mode'];
  readonly sources: Group['sources'];
  readonly dynamic: Group['dynamic'];
  readonly defaultAction: Group['defaultAction'];
  readonly #text: Buffer;
  #rules: readonly Rule[] | null = null;

  constructor(head: Head, text: Buffer, before: ReadGroup | undefined) {
    const { id, pointer, mode, sources, dynamic, defaultAction } = head;
    this.id = id;
    this.pointer = pointer;
    this.mode = mode;
    this.sources = sources;
    this.dynamic = dynamic;
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
    ).rules;
    return this.#rules;
  }
}
