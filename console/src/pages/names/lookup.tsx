import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, bodyOf } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { addressOf, go, query } from '../../router.js';
import { Failure, Panel, VerdictMark } from '../../ui/parts.js';
import { verdictOf, Walk } from '../../ui/walk.js';

/** A form that asks whether a client may look up a DNS name, and shows how the node decides. */
export function LookupQuestion() {
  const asked = { src: query.value.get('src') ?? '', query: query.value.get('query') ?? '' };
  const fields = useSignal(asked);
  useEffect(() => {
    fields.value = asked;
  }, [asked.src, asked.query]);
  const field = (name: 'src' | 'query', label: string, placeholder: string) => (
    <label class={`field ${name === 'query' ? 'wide' : ''}`}>
      {label}
      <input
        required
        spellcheck={false}
        autocomplete="off"
        placeholder={placeholder}
        value={fields.value[name]}
        onInput={(event) => {
          fields.value = { ...fields.value, [name]: event.currentTarget.value.trim() };
        }}
      />
    </label>
  );
  return (
    <>
      <form
        class="form-row"
        onSubmit={(event) => {
          event.preventDefault();
          go(addressOf('names', { filter: query.peek().get('filter') ?? '', ...fields.value }));
        }}
      >
        {field('src', 'A client', '10.1.0.7')}
        {field('query', 'looks up', 'shop.example.com')}
        <button type="submit" class="primary">
          Explain
        </button>
      </form>
      {asked.src !== '' && asked.query !== '' && <Answer {...asked} />}
    </>
  );
}

function Answer({ src, query }: { readonly src: string; readonly query: string }) {
  const key = `${src} ${query}`;
  const explained = usePolled(
    (signal) => bodyOf(api.POST('/api/v1/policy/explain', { body: { src, query }, signal })),
    null,
    key,
  );
  const answer = explained.data.value;
  if (answer === null) return <Failure failure={explained.failure.value} />;
  return (
    <Panel
      title={
        <>
          <VerdictMark verdict={verdictOf(answer)} />{' '}
          <span class="muted">
            {src} looks up {query}
          </span>
        </>
      }
    >
      <p class="sentence">{answer.reason}</p>
      <Walk explained={answer} />
      {answer.unknown.length > 0 && <p class="muted">Not known for this answer: {answer.unknown.join(', ')}.</p>}
    </Panel>
  );
}
