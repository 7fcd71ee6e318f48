import type { ComponentChildren } from 'preact';
import { ApiFailure } from '../api/client.js';

type PanelProps = {
  readonly title?: ComponentChildren;
  readonly actions?: ComponentChildren;
  readonly class?: string;
  readonly children: ComponentChildren;
};

/** A section of a page with a heading. */
export function Panel({ title, actions, class: more = '', children }: PanelProps) {
  return (
    <section class={`panel ${more}`}>
      {(title !== undefined || actions !== undefined) && (
        <header class="panel-head">
          {title !== undefined && <h2>{title}</h2>}
          {actions !== undefined && <div class="actions">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

export type Verdict = 'allow' | 'deny' | 'would_deny';

const WORDS: Readonly<Record<Verdict, string>> = { allow: 'allowed', deny: 'denied', would_deny: 'would be denied' };

/** Shows a verdict as a word and a symbol, because not every user can distinguish the colors. */
export function VerdictMark({ verdict, word = WORDS[verdict] }: { readonly verdict: Verdict; readonly word?: string }) {
  return (
    <span class={`verdict ${verdict}`}>
      <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
        {verdict === 'allow' && <path d="M2 6.5 5 9.5 10 3" fill="none" stroke="currentColor" stroke-width="2" />}
        {verdict === 'deny' && <path d="M2.5 2.5l7 7m0-7l-7 7" fill="none" stroke="currentColor" stroke-width="2" />}
        {verdict === 'would_deny' && (
          <path d="M6 1.5 11 10.5H1Z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round" />
        )}
      </svg>
      {word}
    </span>
  );
}

/**
 * A symbol for good or bad: a filled circle with a check mark, or a diamond with an exclamation mark. `word`
 * is empty if a text follows the symbol.
 */
export function StateMark({ ok, word }: { readonly ok: boolean; readonly word: string }) {
  return (
    <svg
      class={`state-mark ${ok ? 'ok' : 'bad'}`}
      viewBox="0 0 14 14"
      width="14"
      height="14"
      role={word === '' ? undefined : 'img'}
      aria-label={word === '' ? undefined : word}
      aria-hidden={word === ''}
    >
      {ok ? (
        <>
          <circle cx="7" cy="7" r="6.5" fill="currentColor" />
          <path d="M4 7.2 6.2 9.4 10 5" fill="none" stroke="var(--panel)" stroke-width="1.6" />
        </>
      ) : (
        <>
          <path d="M7 .5 13.5 7 7 13.5.5 7Z" fill="currentColor" />
          <path d="M7 3.8v4M7 9.4v1" stroke="var(--panel)" stroke-width="1.7" />
        </>
      )}
    </svg>
  );
}

/** Shows the reason why a request failed, and each problem in the response. */
export function Failure({ failure }: { readonly failure: unknown }) {
  if (failure === null || failure === undefined) return null;
  const problems = failure instanceof ApiFailure ? (failure.problem.problems ?? []) : [];
  return (
    <div class="failure" role="alert">
      <p>{failure instanceof Error ? failure.message : 'The request failed for an unknown reason.'}</p>
      {problems.length > 0 && (
        <ul>
          {problems.slice(0, 20).map(({ pointer, message }) => (
            <li key={`${pointer} ${message}`}>
              <code>{pointer}</code> {message}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** The text that a list shows while it has no entries. It says what the user can do. */
export function Empty({ children }: { readonly children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
