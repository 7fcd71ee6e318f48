import { useEffect, useRef } from 'preact/hooks';
import type { ContextFrom } from 'xstate';
import type { Schemas } from '../../api/client.js';
import type { DraftProblem, draftChart, PolicyChange, Terms } from '../../charts/draft.chart.js';
import { Panel } from '../../ui/parts.js';
import { PolicyDiffView } from '../../ui/policy-diff.js';
import { ApplyForm } from './apply-form.js';
import { BrokenAssertions } from './broken-assertions.js';

type Props = {
  readonly title: string;
  readonly context: ContextFrom<typeof draftChart>;
  readonly record: Schemas['PolicyRecord'] | null;
  readonly isBusy: boolean;
  readonly onApply: (terms: Terms) => void;
  readonly onClose: () => void;
  /** Chooses another form of the change, for example to store it only. */
  readonly onChoose?: (change: PolicyChange) => void;
  readonly children?: preact.ComponentChildren;
};

/** A dialog that shows the effects of a change, with the form that applies it. */
export function Review({ title, context, record, isBusy, onApply, onClose, onChoose, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  const { judgement } = context;
  if (judgement?.isSound !== true) return null;
  const { result, warnings } = judgement;
  return (
    <section class="review" aria-labelledby="review-title" aria-busy={isBusy}>
      <header class="panel-head">
        <h2 id="review-title" tabIndex={-1} ref={heading}>
          {title}
        </h2>
        <button type="button" onClick={onClose}>
          Back without applying
        </button>
      </header>
      <div class="columns">
        <div class="stack">
          <Panel title="What changes for flows">
            <PolicyDiffView diff={result.diff} />
          </Panel>
          {result.assertions.length > 0 && <BrokenAssertions failures={result.assertions} />}
          {warnings.length > 0 && <Warnings warnings={warnings} />}
          {children}
        </div>
        <ApplyForm
          context={context}
          result={result}
          record={record}
          isBusy={isBusy}
          onApply={onApply}
          {...(onChoose === undefined ? {} : { onChoose })}
        />
      </div>
    </section>
  );
}

function Warnings({ warnings }: { readonly warnings: readonly DraftProblem[] }) {
  return (
    <Panel title={warnings.length === 1 ? '1 warning' : `${warnings.length} warnings`}>
      <ul class="plain-list">
        {warnings.slice(0, 50).map(({ pointer, message }) => (
          <li key={`${pointer} ${message}`} class="problem warning">
            {message} {pointer !== '' && <code class="muted">{pointer}</code>}
          </li>
        ))}
      </ul>
    </Panel>
  );
}
