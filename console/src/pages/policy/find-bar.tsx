import type { Signal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { full } from '../../format.js';
import { type EditorHandle, type Found, MOST_FOUND } from './editor.js';

/** The search text and its result; null while the search bar is closed. */
export type Sought = { readonly words: string; readonly found: Found };

type Props = { readonly sought: Signal<Sought | null>; readonly editor: RefObject<EditorHandle | null> };

/** A search bar for the text of an editor. Ctrl+F in the editor opens it. */
export function FindBar({ sought, editor }: Props) {
  const field = useRef<HTMLInputElement>(null);
  const isOpen = sought.value !== null;
  useEffect(() => {
    if (isOpen) field.current?.select();
  }, [isOpen]);
  if (sought.value === null) return null;
  const { words, found } = sought.value;
  const find = (text: string, direction: -1 | 0 | 1) => {
    sought.value = { words: text, found: editor.current?.find(text, direction) ?? { number: 0, count: 0 } };
  };
  const close = () => {
    sought.value = null;
    editor.current?.focus();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const isBack = event.shiftKey;
    if (event.key === 'Escape') close();
    else if (event.key === 'Enter' || event.key === 'F3') find(words, isBack ? -1 : 1);
    else if (event.key === 'f' && (event.ctrlKey || event.metaKey)) field.current?.select();
    else return;
    event.preventDefault();
  };
  return (
    <search class="find-bar">
      <input
        ref={field}
        type="search"
        aria-label="Find in the text"
        placeholder="Find in the text"
        spellcheck={false}
        autocomplete="off"
        value={words}
        onInput={(event) => find(event.currentTarget.value, 0)}
        onKeyDown={onKeyDown}
      />
      <span role="status" class="muted">
        {words !== '' && placeText(found)}
      </span>
      <button type="button" disabled={found.count === 0} onClick={() => find(words, -1)}>
        Previous
      </button>
      <button type="button" disabled={found.count === 0} onClick={() => find(words, 1)}>
        Next
      </button>
      <button type="button" class="plain" onClick={close}>
        Close
      </button>
    </search>
  );
}

const placeText = ({ number, count }: Found): string =>
  count === 0
    ? 'not found'
    : count === MOST_FOUND
      ? `more than ${full(MOST_FOUND - 1)} places`
      : `${number} of ${count}`;
