import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useId } from 'preact/hooks';
import { api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { type AskedPolicy, draftOf, policyIdOf } from '../../asked-policy.js';
import { addressOf, go, query } from '../../router.js';
import { hasDraft } from '../policy/kept-drafts.js';
import { Answer } from './answer.js';
import {
  type FieldName,
  type FieldProblem,
  type Fields,
  fieldsIn,
  fieldsOf,
  KINDS,
  type Kind,
  questionText,
  readFields,
} from './question.js';
import { useSuggestions } from './suggestions.js';
import '../../style/ask.css';

type Faults = Readonly<Partial<Record<FieldName, string>>>;

/**
 * The page Ask. It answers which sources can reach a service, which destinations a source can reach, and
 * whether flows always or never pass.
 */
export function Ask() {
  const asked = query.value.has('kind') ? fieldsIn(query.value) : null;
  const of = query.value.get('of') ?? '';
  const fields = useSignal(fieldsIn(query.value));
  const chosen = useSignal(of);
  const faults = useSignal<Faults>({});
  // A link to this page, and the back button, change the query.
  useEffect(() => {
    fields.value = fieldsIn(query.value);
    chosen.value = of;
    faults.value = {};
  }, [query.value.toString()]);
  const policies = usePolled((signal) => bodyOf(api.GET('/api/v1/policies', { signal })), null).data.value?.items ?? [];
  const submit = (event: Event) => {
    event.preventDefault();
    const { flows, problems } = readFields(fields.value);
    faults.value = faultsOf(problems);
    if (flows !== null) go(addressOf('ask', { ...asText(fields.value), of: chosen.value }));
  };
  const read = asked === null ? null : readFields(asked);
  return (
    <>
      <h1>Ask the policy</h1>
      <p class="muted">
        The node answers for every flow at once, and names the rules that decide. An empty field, or <code>any</code>,
        means every value.
      </p>
      <Form fields={fields} of={chosen} faults={faults.value} policies={policies} onSubmit={submit} />
      {asked === null || read === null ? (
        <Examples policies={policies} />
      ) : read.flows === null ? (
        <p class="failure" role="alert">
          {read.problems[0]?.message}
        </p>
      ) : (
        <Answer
          key={JSON.stringify([asked, of])}
          fields={asked}
          flows={read.flows}
          of={of}
          onProblems={(problems) => {
            faults.value = faultsOf(problems);
          }}
        />
      )}
    </>
  );
}

/**
 * Returns the parameters of the URL of the page. Omits the fields that this kind of question does not have.
 */
const asText = ({ kind, ...texts }: Fields) => ({
  kind,
  ...Object.fromEntries(fieldsOf(kind).map((name) => [name, texts[name].trim()])),
});

const faultsOf = (problems: readonly FieldProblem[]): Faults =>
  Object.fromEntries([...problems].reverse().map(({ field, message }) => [field, message]));

type PolicyRecord = Schemas['PolicyRecord'];
type FormProps = {
  readonly fields: Signal<Fields>;
  readonly of: Signal<AskedPolicy>;
  readonly faults: Faults;
  readonly policies: readonly PolicyRecord[];
  readonly onSubmit: (event: Event) => void;
};

const LABELS: Readonly<Record<FieldName, readonly [label: string, hint: string]>> = {
  from: ['Source', 'a source group, 10.1.0.7, or 10.1.0.0/24'],
  to: ['Destination', '10.9.0.5, 10.9.0.0/24, or db.example.com'],
  service: ['Service', 'tcp/22, udp/53,123, icmp/8, or 443'],
};

function Form({ fields, of, faults, policies, onSubmit }: FormProps) {
  const id = useId();
  const isUsed = useSignal(false);
  const active = policies.find(({ active }) => active);
  const policyId = policyIdOf(of.value) ?? active?.id;
  const suggestions = useSuggestions(
    isUsed.value && policies.some((each) => each.id === policyId) ? policyId : undefined,
  );
  const { kind } = fields.value;
  return (
    <form
      onSubmit={onSubmit}
      onFocusCapture={() => {
        isUsed.value = true;
      }}
    >
      <fieldset class="kinds">
        <legend class="visually-hidden">Kind of question</legend>
        {(Object.keys(KINDS) as Kind[]).map((each) => (
          <label key={each}>
            <input
              type="radio"
              name={`${id}-kind`}
              checked={each === kind}
              onChange={() => {
                fields.value = { ...fields.value, kind: each };
              }}
            />
            {KINDS[each]}
          </label>
        ))}
      </fieldset>
      <div class="form-row ask-fields">
        {fieldsOf(kind).map((name, at) => (
          <label key={name} class={`field ${name === 'service' ? '' : 'wide'}`}>
            {LABELS[name][0]}
            <input
              data-search={at === 0 ? '' : undefined}
              placeholder={LABELS[name][1]}
              list={`${id}-${name}`}
              spellcheck={false}
              autocomplete="off"
              aria-invalid={faults[name] !== undefined}
              aria-describedby={faults[name] === undefined ? undefined : `${id}-${name}-fault`}
              value={fields.value[name]}
              onInput={(event) => {
                fields.value = { ...fields.value, [name]: event.currentTarget.value };
              }}
            />
            {faults[name] !== undefined && (
              <span id={`${id}-${name}-fault`} class="is-deny" role="alert">
                {faults[name]}
              </span>
            )}
            <datalist id={`${id}-${name}`}>
              {suggestions.data.value?.[name].map((value) => (
                <option key={value} value={value} />
              ))}
            </datalist>
          </label>
        ))}
        <label class="field">
          About
          <select
            value={of.value}
            onChange={(event) => {
              of.value = event.currentTarget.value;
            }}
          >
            {choices(policies, of.value).map(([value, words]) => (
              <option key={value} value={value}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <button type="submit" class="primary">
          Ask
        </button>
      </div>
    </form>
  );
}

/**
 * Returns the policies that a question can be about: the policy in force, the stored policies, and the drafts
 * of this browser tab.
 */
function choices(policies: readonly PolicyRecord[], chosen: AskedPolicy): (readonly [AskedPolicy, string])[] {
  const list = [
    ['', 'the policy in force'] as const,
    ...policies.flatMap(({ id, name, active }) => [
      ...(!hasDraft(id) ? [] : [[draftOf(id), `my draft of ${name ?? 'the unnamed policy'}`] as const]),
      ...(active ? [] : [[id, `${name ?? 'unnamed'}, stored`] as const]),
    ]),
    ...(!hasDraft(null) ? [] : [[draftOf(null), 'my draft of a new policy'] as const]),
  ];
  return list.some(([value]) => value === chosen) ? list : [...list, [chosen, 'another policy']];
}

/** Links to example questions, with a source group of the policy in force. */
function Examples({ policies }: { readonly policies: readonly PolicyRecord[] }) {
  const active = policies.find((policy) => policy.active)?.id;
  const group = usePolled(
    async (signal) =>
      active === undefined
        ? null
        : (await bodyOf(api.GET('/api/v1/policy/hits', { params: { query: { limit: 1 } }, signal }))).items[0]
            ?.source_group,
    null,
    active,
  ).data.value;
  const source = group ?? '10.0.0.0/8';
  const examples: readonly Fields[] = [
    { kind: 'who', from: '', to: '', service: 'tcp/22' },
    { kind: 'what', from: source, to: '', service: '' },
    { kind: 'never', from: source, to: '', service: 'tcp/23' },
    { kind: 'always', from: source, to: '', service: 'udp/53' },
  ];
  return (
    <section aria-labelledby="examples">
      <h2 id="examples">For example</h2>
      <ul class="plain-list examples">
        {examples.map((example) => (
          <li key={example.kind}>
            <a class="button" href={addressOf('ask', asText(example))}>
              {questionText(example)}
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}
