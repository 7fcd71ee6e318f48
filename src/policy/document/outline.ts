import type { TextEdit } from '#contracts/policy/policy-record.js';
import type { ListSpans } from './json-scanner.js';

/**
 * The positions of the source groups in the JSON text of a policy, as byte offsets. The byte at the end
 * offset of a group does not belong to the group.
 */
export type Outline = {
  /**
   * `close`: the byte offset of the closing brace of the policy. `hasMembers`: whether the policy object has
   * any member.
   */
  readonly close: number;
  readonly hasMembers: boolean;
  /**
   * The byte offset of the opening bracket of `source_groups`; undefined if the policy has no such member.
   */
  readonly list: number | undefined;
  readonly starts: readonly number[];
  readonly ends: readonly number[];
};

/** The edit of the JSON text, and the outline of the edited text. */
export type OutlineEdit = { readonly edit: TextEdit; readonly outline: Outline };

const CLOSE_OBJECT = 0x7d;

/**
 * Returns the outline of the policy in `text`. `list` has the positions of `source_groups` in
 * the request body; `text` begins at byte `base` of the body.
 */
export function outlineOf(text: Uint8Array, hasMembers: boolean, list: ListSpans | undefined, base: number): Outline {
  return {
    close: text.lastIndexOf(CLOSE_OBJECT),
    hasMembers,
    list: list === undefined ? undefined : list.start - base,
    starts: list?.items.map(({ start }) => start - base) ?? [],
    ends: list?.items.map(({ end }) => end - base) ?? [],
  };
}

export function replaceGroup(outline: Outline, index: number, text: Uint8Array): OutlineEdit {
  const edit = { from: at(outline.starts, index), to: at(outline.ends, index), text };
  const by = text.length - (edit.to - edit.from);
  return {
    edit,
    outline: {
      ...outline,
      close: outline.close + by,
      starts: outline.starts.map((start, group) => (group <= index ? start : start + by)),
      ends: outline.ends.map((end, group) => (group < index ? end : end + by)),
    },
  };
}

/** Appends a group, given as JSON text, to the list of groups. Creates the list if the policy has none. */
export function appendGroup(outline: Outline, text: Uint8Array): OutlineEdit {
  const { list, ends } = outline;
  const last = ends.at(-1);
  const member = `${outline.hasMembers ? ',' : ''}"source_groups":[`;
  const [from, before, after] =
    list === undefined ? [outline.close, member, ']'] : last === undefined ? [list + 1, '', ''] : [last, ',', ''];
  const start = from + before.length;
  const edit = { from, to: from, text: concatenated(before, text, after) };
  return {
    edit,
    outline: {
      close: outline.close + edit.text.length,
      hasMembers: true,
      list: list ?? start - 1,
      starts: [...outline.starts, start],
      ends: [...ends, start + text.length],
    },
  };
}

/** Removes a group and the comma after it. For the last group, removes the comma before it. */
export function removeGroup(outline: Outline, index: number): OutlineEdit {
  const { starts, ends } = outline;
  const [from, to] =
    index + 1 < starts.length
      ? [at(starts, index), at(starts, index + 1)]
      : [index > 0 ? at(ends, index - 1) : at(starts, index), at(ends, index)];
  const by = from - to;
  const rest = (places: readonly number[]) =>
    places.toSpliced(index, 1).map((place, group) => (group < index ? place : place + by));
  return {
    edit: { from, to, text: new Uint8Array(0) },
    outline: { ...outline, close: outline.close + by, starts: rest(starts), ends: rest(ends) },
  };
}

function concatenated(before: string, text: Uint8Array, after: string): Uint8Array {
  const encoder = new TextEncoder();
  const whole = new Uint8Array(before.length + text.length + after.length);
  whole.set(encoder.encode(before));
  whole.set(text, before.length);
  whole.set(encoder.encode(after), before.length + text.length);
  return whole;
}

function at(places: readonly number[], index: number): number {
  const place = places[index];
  if (place === undefined) throw new RangeError(`there is no source group with the index ${index}`);
  return place;
}
