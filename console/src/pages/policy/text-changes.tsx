import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { PolicyChange } from '../../charts/draft.chart.js';
import { diffLines, withContext } from './text-diff.js';

const SHOWN = 1_000;

type Props = { readonly before: string; readonly after: PolicyChange };

/** Shows the lines that differ between two texts. They are compared only when the user opens this part. */
export function TextChanges({ before, after }: Props) {
  const isOpen = useSignal(false);
  return (
    <details
      class="panel"
      onToggle={(event) => {
        isOpen.value = event.currentTarget.open;
      }}
    >
      <summary>Changed lines of the text</summary>
      {isOpen.value && after.kind === 'text' && <LineDiff before={before} after={after.text.toString()} />}
    </details>
  );
}

/**
 * Shows the differences of two texts line by line: removed lines with a minus sign, added lines with a plus
 * sign.
 */
export function LineDiff({ before, after }: { readonly before: string; readonly after: string }) {
  const lines = useMemo(() => {
    const compared = diffLines(before, after);
    return compared === null ? null : withContext(compared);
  }, [before, after]);
  if (lines === null) return <p class="muted">More than 2,000 lines differ: too many to show them here.</p>;
  if (lines.every((line) => line === null)) return <p class="muted">The texts are equal.</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls long lines.
    // biome-ignore lint/a11y/useSemanticElements: a fieldset does not keep the layout of the text.
    <div class="code line-diff" role="group" tabIndex={0} aria-label="Changed lines">
      {lines.slice(0, SHOWN).map((line, at) => (
        <span key={String(at)} class={line?.kind ?? 'gap'}>
          {line === null ? '⋯' : `${{ same: ' ', removed: '-', added: '+' }[line.kind]} ${line.text}`}
        </span>
      ))}
      {lines.length > SHOWN && <span class="gap">{lines.length - SHOWN} further lines</span>}
    </div>
  );
}
