import type { LazyText } from '../../charts/draft.chart.js';

/**
 * A draft that is still there after a reload of the page, with the ETag and revision of the stored text from
 * which it was made.
 */
export type KeptDraft = { readonly text: string; readonly etag: string | null; readonly revision: number | null };
type Draft = Omit<KeptDraft, 'text'> & { readonly text: LazyText };

const keyOf = (id: string | null) => `weir.draft.${id ?? 'new'}`;
/** Drafts that are too large for the session storage of the browser. A reload of the page loses them. */
const inMemory = new Map<string, Draft>();
/**
 * The maximum length of a stored draft, in characters. A browser stores about five million characters, and
 * refuses a longer text only after a slow attempt.
 */
const LONGEST_STORED = 2_000_000;

/** Saves a draft in this browser tab. Returns false if a reload of the page would lose the draft. */
export function keepDraft(id: string | null, draft: Draft): boolean {
  const key = keyOf(id);
  if (draft.text.length <= LONGEST_STORED) {
    try {
      sessionStorage.setItem(key, JSON.stringify({ ...draft, text: draft.text.toString() }));
      inMemory.delete(key);
      return true;
    } catch {
      // The storage is full.
    }
  }
  sessionStorage.removeItem(key);
  inMemory.set(key, draft);
  return false;
}

export const hasDraft = (id: string | null): boolean =>
  inMemory.has(keyOf(id)) || sessionStorage.getItem(keyOf(id)) !== null;

export function keptDraft(id: string | null): KeptDraft | null {
  const text = sessionStorage.getItem(keyOf(id));
  if (text !== null) return JSON.parse(text) as KeptDraft;
  const draft = inMemory.get(keyOf(id));
  return draft === undefined ? null : { ...draft, text: draft.text.toString() };
}

export function forgetDraft(id: string | null): void {
  sessionStorage.removeItem(keyOf(id));
  inMemory.delete(keyOf(id));
}

const dropped = new Map<string, string>();

/** Keeps the text of a draft that the user has discarded, so that the page can offer to restore it. */
export function dropDraft(id: string, text: string): void {
  forgetDraft(id);
  dropped.set(id, text);
}

export function takeDropped(id: string): string | null {
  const text = dropped.get(id) ?? null;
  dropped.delete(id);
  return text;
}
