/** A draft that survives a reload of the page, with the stored text from which it was made. */
export type KeptDraft = { readonly text: string; readonly etag: string | null; readonly revision: number | null };

const keyOf = (id: string | null) => `weir.draft.${id ?? 'new'}`;
/** Drafts that are too large for the storage of the browser stay until the page is reloaded. */
const inMemory = new Map<string, KeptDraft>();

/** Keeps a draft in this tab. Returns false if a reload of the page loses it. */
export function keepDraft(id: string | null, draft: KeptDraft): boolean {
  const key = keyOf(id);
  try {
    sessionStorage.setItem(key, JSON.stringify(draft));
    inMemory.delete(key);
    return true;
  } catch {
    sessionStorage.removeItem(key);
    inMemory.set(key, draft);
    return false;
  }
}

export function keptDraft(id: string | null): KeptDraft | null {
  const text = sessionStorage.getItem(keyOf(id));
  return text === null ? (inMemory.get(keyOf(id)) ?? null) : (JSON.parse(text) as KeptDraft);
}

export function forgetDraft(id: string | null): void {
  sessionStorage.removeItem(keyOf(id));
  inMemory.delete(keyOf(id));
}

const dropped = new Map<string, string>();

/**
 * Remembers a draft that a person gave up for the stored text, until the page shows that text with an undo.
 */
export function dropDraft(id: string, text: string): void {
  forgetDraft(id);
  dropped.set(id, text);
}

export function takeDropped(id: string): string | null {
  const text = dropped.get(id) ?? null;
  dropped.delete(id);
  return text;
}
