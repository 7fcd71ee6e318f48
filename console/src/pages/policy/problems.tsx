import type { RefObject } from 'preact';
import type { ContextFrom } from 'xstate';
import type { draftChart } from '../../charts/draft.chart.js';
import { full } from '../../format.js';
import { Failure, Panel } from '../../ui/parts.js';
import type { EditorHandle } from './editor.js';

type Props = {
  readonly context: ContextFrom<typeof draftChart>;
  readonly state: string;
  readonly onGo: (offset: number) => void;
  readonly text: RefObject<EditorHandle | null>;
};
const SHOWN = 50;

/** Lists the problems and warnings that the node found, with links to their lines. */
export function Problems({ context: { judgement, failure }, state, onGo, text }: Props) {
  const list = judgement === null ? [] : judgement.isSound ? judgement.warnings : judgement.problems;
  if (list.length === 0 && (failure === null || state !== 'unanswered')) return null;
  return (
    <Panel title="To look at">
      {state === 'unanswered' && <Failure failure={failure} />}
      <ul class="plain-list">
        {list.slice(0, SHOWN).map(({ pointer, message, from }) => (
          <li
            key={`${pointer} ${message} ${from}`}
            class={`problem ${judgement?.isSound === true ? 'warning' : 'error'}`}
          >
            {from !== undefined && (
              <button type="button" class="link" onClick={() => onGo(from)}>
                line {full(text.current?.lineOf(from) ?? 1)}
              </button>
            )}{' '}
            {message}
          </li>
        ))}
      </ul>
      {list.length > SHOWN && <p class="muted">{full(list.length - SHOWN)} more are marked in the text.</p>}
    </Panel>
  );
}
