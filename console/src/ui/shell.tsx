import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { node, session } from '../node.js';
import { PAGES, type Page } from '../pages/pages.js';
import { addressOf } from '../router.js';
import { Help, useShortcuts } from './shortcuts.js';
import { Brand } from './sign-in.js';
import { PendingBar, SilentBar, StatusBar } from './status-bar.js';
import { ThemeChoice } from './theme.js';

/** The frame of each page: the navigation, the state of the node, and bars with urgent messages. */
export function Shell({ page, children }: { readonly page: Page | undefined; readonly children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  const help = useShortcuts();
  const isFirst = useRef(true);
  // Move the focus to the new page, so that a screen reader reads it and the keyboard works in it.
  useEffect(() => {
    if (isFirst.current) isFirst.current = false;
    else main.current?.focus();
  }, [page]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <nav class="side" aria-label="Pages">
        <a class="home" href={addressOf('')}>
          <Brand />
        </a>
        <p class="node-name" title="The node that serves this page">
          {session.current.value?.node}
        </p>
        <ul>
          {PAGES.map((each) => (
            <li key={each.path}>
              <a href={addressOf(each.path)} aria-current={each === page ? 'page' : undefined}>
                {each.title}
              </a>
            </li>
          ))}
        </ul>
        <div class="side-end">
          <ThemeChoice />
          <button type="button" class="plain" onClick={() => help.current?.showModal()}>
            Keyboard <kbd>?</kbd>
          </button>
          <button type="button" class="plain" onClick={session.signOut}>
            Sign out {session.current.value?.subject}
            {session.current.value?.role === 'readonly' && <span class="muted"> (read only)</span>}
          </button>
        </div>
      </nav>
      <div class={`content ${node.isSilent.value ? 'is-old' : ''}`}>
        <StatusBar />
        {session.reason.value !== null && (
          <div class="bar bad" role="alert">
            {session.reason.value}
          </div>
        )}
        <SilentBar />
        <PendingBar />
        <main id="main" ref={main} tabIndex={-1}>
          {children}
        </main>
      </div>
      <Help dialog={help} />
    </>
  );
}
