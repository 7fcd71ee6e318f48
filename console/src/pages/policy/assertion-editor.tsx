import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { ApiFailure, api, bodyOf, type Schemas } from '../../api/client.js';
import type { DraftProblem } from '../../charts/draft.chart.js';
import { session } from '../../node.js';
import { finish } from '../../slices.js';
import { Failure } from '../../ui/parts.js';
import { AssertionRegions } from './broken-assertions.js';
import { Editor } from './editor.js';
import { readText } from './policy-text.js';

type Shown = Schemas['ShownAssertion'];
type Props = {
  readonly text: string;
  /** The id of the edited assertion; null for a new one, whose id is part of the text. */
  readonly id: string | null;
  readonly etag: string | null;
  readonly onDone: () => void;
};
const PAUSE_MS = 400;

/**
 * An editor for one assertion (a test of the policy) as YAML. Before it is saved, the node checks the text
 * and evaluates the assertion.
 */
export function AssertionEditor({ text: first, id, etag, onDone }: Props) {
  const text = useSignal(first);
  const outcome = useSignal<Shown | null>(null);
  const problems = useSignal<readonly DraftProblem[]>([]);
  const failure = useSignal<unknown>(null);
  const isBusy = useSignal(false);
  const check = useRef<AbortController>(null);
  const write = async (isDry: boolean, signal?: AbortSignal) => {
    const document = readText(text.value);
    problems.value = document.syntax.map((problem) => ({ pointer: '', ...problem }));
    if (document.value === null) return null;
    const body = document.value as Schemas['AssertionWrite'];
    const header = isDry || etag === null ? {} : { 'if-match': etag };
    const params = {
      path: { id: id ?? String(body.id ?? '') },
      header,
      query: isDry ? { dry_run: 'true' } : {},
    } as never;
    try {
      return await bodyOf(api.PUT('/api/v1/assertions/{id}', { params, body, ...(signal && { signal }) }));
    } catch (error) {
      if (!(error instanceof ApiFailure) || error.problem.problems === undefined) throw error;
      const places = finish(document.places(error.problem.problems.map(({ pointer }) => pointer)));
      problems.value = error.problem.problems.map(({ pointer, message }) => ({
        pointer,
        message,
        ...places.get(pointer),
      }));
      return null;
    }
  };
  useEffect(() => {
    const timer = setTimeout(async () => {
      check.current = new AbortController();
      failure.value = null;
      try {
        outcome.value = await write(true, check.current.signal);
      } catch (error) {
        if (!(error instanceof DOMException)) failure.value = error;
      }
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      check.current?.abort();
    };
  }, [text.value]);
  const save = async () => {
    isBusy.value = true;
    failure.value = null;
    try {
      if ((await write(false)) !== null) onDone();
    } catch (error) {
      failure.value = error;
    }
    isBusy.value = false;
  };
  const marks = useMemo(
    () =>
      problems.value.flatMap(({ from, to, message }) =>
        from === undefined || to === undefined ? [] : [{ from, to, message, severity: 'error' as const }],
      ),
    [problems.value],
  );
  const result = problems.value.length > 0 ? null : outcome.value;
  return (
    <div class="assertion-editor">
      <Editor
        text={first}
        label={id === null ? 'New assertion as YAML' : `Assertion ${id} as YAML`}
        marks={marks}
        onEdit={(edited) => {
          text.value = edited.toString();
        }}
      />
      <div role="status">
        {problems.value.map(({ pointer, message }) => (
          <p key={`${pointer} ${message}`} class="problem error">
            {message} {pointer !== '' && <code class="muted">{pointer}</code>}
          </p>
        ))}
        {result !== null && (
          <div class={`problem ${result.result === 'holds' ? '' : 'warning'}`}>
            {result.result === 'holds'
              ? 'It holds for the policy in force.'
              : result.result === 'broken'
                ? `It does not hold now: ${result.message}. It can be saved, and then only warns until it holds.`
                : 'Whether it holds is not known yet.'}
            <AssertionRegions regions={result.regions} omitted={result.regions_omitted} />
          </div>
        )}
      </div>
      <Failure failure={failure.value} />
      <p class="actions">
        <button
          type="button"
          class="primary"
          disabled={isBusy.value || problems.value.length > 0 || !session.mayWrite.value}
          title={session.mayWrite.value ? undefined : 'This session may only read'}
          onClick={() => void save()}
        >
          Save the assertion
        </button>
        <button type="button" onClick={onDone}>
          Cancel
        </button>
      </p>
    </div>
  );
}
