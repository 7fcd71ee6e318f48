import type { TextEdit } from '#contracts/policy-record.js';
import type { ListSpans } from './json-scanner.js';

/** The positions of the groups of a policy in its JSON text; byte offsets, ends excluded. */
export type Outline = {
  /** The offset of the closing brace of the policy, and whether there is a member before it. */
  readonly close: number;
  readonly hasMembers: boolean;
  /** The offset of the list of groups, its bracket included; undefined if the policy has no such member. */
  readonly list: number | undefined;
  readonly starts: readonly number[];
  readonly ends: readonly number[];
};

/** A change of the list of groups: the edit of the text, and the outline after it. */
export type OutlineEdit = { readonly edit: TextEdit; readonly outline: Outline };

const CLOSE_OBJECT = 0x7d;

/** The outline of the policy `text`. `list` is its list of groups, in offsets counted from `base`. */
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

/** Appends a group to the list. */
export function appendGroup(outline: Outline, text: Uint8Array): OutlineEdit {
  const { list, ends } = outline;
  const last = ends.at(-1);
  const member = `${outline.hasMembers ? ',' : ''}"source_groups":[`;
  const [from, before, after] =
    list === undefined ? [outline.close, member, ']'] : last === undefined ? [list + 1, '', ''] : [last, ',', ''];
  const start = from + before.length;
  const edit = { from, to: from, text: joined(before, text, after) };
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

/** Removes a group with the comma behind it, or with the comma before it if the group is the last. */
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

function joined(before: string, text: Uint8Array, after: string): Uint8Array {
  const encoder = new TextEncoder();
  const whole = new Uint8Array(before.length + text.length + after.length);
  whole.set(encoder.encode(before));
  whole.set(text, before.length);
  whole.set(encoder.encode(after), before.length + text.length);
  return whole;
}

function at(places: readonly number[], index: number): number {
  const place = places[index];
  if (place === undefined) throw new RangeError(`there is no group ${index}`);
  return place;
}
