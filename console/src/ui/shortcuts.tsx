import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { PAGES } from '../pages/pages.js';
import { addressOf, go } from '../router.js';

const FOLLOWS_WITHIN_MS = 1_500;

/** The first target of an event in the editor is inside of its shadow root. */
const isTyping = (target: EventTarget | undefined) =>
  target instanceof Element && target.closest('input, textarea, select, [contenteditable="true"]') !== null;

/** Handles the keys of all pages: `g` and a letter opens a page, `/` goes to the search field, `?` lists the keys. */
export function useShortcuts(): RefObject<HTMLDialogElement | null> {
  const help = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    let goAt = Number.NEGATIVE_INFINITY;
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.composedPath()[0])) return;
      const page =
        performance.now() - goAt < FOLLOWS_WITHIN_MS ? PAGES.find(({ key }) => key === event.key) : undefined;
      goAt = event.key === 'g' ? performance.now() : Number.NEGATIVE_INFINITY;
      if (page !== undefined) go(addressOf(page.path));
      else if (event.key === '?') help.current?.showModal();
      else if (event.key === '/') {
        const field = document.querySelector<HTMLElement>('main [data-search]');
        if (field === null) return;
        event.preventDefault();
        field.focus();
      }
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  return help;
}

export function Help({ dialog }: { readonly dialog: RefObject<HTMLDialogElement | null> }) {
  return (
    <dialog ref={dialog} aria-labelledby="help-title" class="help">
      <h2 id="help-title">Keyboard</h2>
      <dl class="keys">
        {PAGES.map(({ path, title, key }) => (
          <div key={path}>
            <dt>
              <kbd>g</kbd> <kbd>{key}</kbd>
            </dt>
            <dd>{title}</dd>
          </div>
        ))}
        <div>
          <dt>
            <kbd>/</kbd>
          </dt>
          <dd>Go to the search field of the page</dd>
        </div>
        <div>
          <dt>
            <kbd>Space</kbd>
          </dt>
          <dd>Hold the live table of the page</dd>
        </div>
        <div>
          <dt>
            <kbd>?</kbd>
          </dt>
          <dd>Show this list</dd>
        </div>
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}
