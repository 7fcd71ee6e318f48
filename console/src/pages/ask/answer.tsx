import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { addressesText } from '../../address-set.js';
import { ApiFailure, api, bodyOf, type Schemas } from '../../api/client.js';
import { usePolled } from '../../api/polled.js';
import { type AskedPolicy, referenceOf } from '../../asked-policy.js';
import { full } from '../../format.js';
import { node, session } from '../../node.js';
import { addressOf } from '../../router.js';
import { Failure, Panel } from '../../ui/parts.js';
import { DeciderName, RegionRow, sentence } from '../../ui/regions.js';
import { Remedy } from '../../ui/remedy.js';
import {
  answerText,
  assertionOf,
  type FieldProblem,
  type Fields,
  type Flows,
  problemsOf,
  questionText,
} from './question.js';

type PolicyAnswer = Schemas['PolicyAnswer'];
type Decided = PolicyAnswer['passing'][number];
type Props = {
  readonly fields: Fields;
  readonly flows: Flows;
  readonly of: AskedPolicy;
  readonly onProblems: (problems: readonly FieldProblem[]) => void;
};

const FEW = 20;
const ALL = 1_000;

/**
 * Shows the answer of the node to a question about a policy: a sentence, then the flows with the rules that
 * decide them.
 */
export function Answer({ fields, flows, of, onProblems }: Props) {
  const limit = useSignal(FEW);
  const asked = usePolled(
    async (signal) => {
      const generation = node.report.peek()?.stats.generation ?? null;
      const body = { ...flows, policy: await referenceOf(of), limit: limit.value };
      return { generation, answer: await bodyOf(api.POST('/api/v1/policy/ask', { body, signal })) };
    },
    null,
    String(limit.value),
  );
  const failure = asked.failure.value;
  const problems = failure instanceof ApiFailure ? problemsOf(failure.problem) : [];
  useEffect(() => {
    if (problems.length > 0) onProblems(problems);
  }, [failure]);
  if (failure !== null) return problems.length > 0 ? null : <Failure failure={failure} />;
  if (asked.data.value === null)
    return (
      <Panel title={questionText(fields)}>
        <p role="status" aria-busy="true">
          The node looks at every flow…
        </p>
      </Panel>
    );
  const { answer, generation } = asked.data.value;
  const present = node.report.value?.stats.generation ?? null;
  const isOld = of === '' && generation !== null && present !== null && generation !== present;
  const obstacle = fields.kind === 'always' ? answer.obstacles.find(({ remedy }) => remedy !== null) : undefined;
  const passing = <Regions title="These pass" list={answer.passing} omitted={answer.passing_omitted} of={of} />;
  const denied = <Regions title="These are denied" list={answer.denied} omitted={answer.denied_omitted} of={of} />;
  return (
    <Panel title={questionText(fields)}>
      <div role="status">
        <p class="sentence">
          <strong>{answerText(fields.kind, answer)}</strong>{' '}
          {sentence(answer.summary.replace(/^(?:always|never|sometimes): /, ''))}
        </p>
      </div>
      {isOld && (
        <p class="notice">
          The policy in force has changed since this answer.{' '}
          <button type="button" onClick={asked.again}>
            Ask again
          </button>
        </p>
      )}
      {!answer.complete && (
        <p class="problem warning">
          The answer is not complete. What is listed is true, but the node did not look at
          {answer.left === null ? ' all flows.' : ` the sources ${addressesText(answer.left)}.`}
        </p>
      )}
      <Keep fields={fields} flows={flows} answer={answer} />
      {fields.kind === 'always' ? denied : passing}
      {obstacle !== undefined && (
        <section class="diff-part">
          <h3>What would let {answer.answer === 'never' ? 'them' : 'the rest'} pass</h3>
          <Remedy obstacle={obstacle} sources={Array.isArray(flows.from) ? flows.from : everySource(answer)} of={of} />
        </section>
      )}
      {fields.kind === 'always' ? passing : denied}
      {limit.value === FEW && answer.passing_omitted + answer.denied_omitted > 0 && (
        <button
          type="button"
          onClick={() => {
            limit.value = ALL;
          }}
        >
          Show all of them
        </button>
      )}
    </Panel>
  );
}

/** Every address of the families whose flows are denied. */
function everySource({ denied }: PolicyAnswer): readonly string[] {
  const isOfIpv6 = ({ example }: Decided) => example.src.includes(':');
  const ipv6 = denied.some(isOfIpv6) ? ['::/0'] : [];
  return denied.every(isOfIpv6) ? ipv6 : ['0.0.0.0/0', ...ipv6];
}

type RegionsProps = {
  readonly title: string;
  readonly list: readonly Decided[];
  readonly omitted: number;
  readonly of: AskedPolicy;
};

function Regions({ title, list, omitted, of }: RegionsProps) {
  if (list.length === 0) return null;
  return (
    <section class="diff-part">
      <h3>
        {title}
        {omitted > 0 && <span class="muted">: the largest parts</span>}
      </h3>
      <ul class="regions">
        {list.map((region) => (
          <RegionRow key={JSON.stringify(region)} region={region} of={of}>
            <p class="before-after">
              <DeciderName decider={region.decider} of={of} />
            </p>
          </RegionRow>
        ))}
      </ul>
      {omitted > 0 && <p class="muted">{full(omitted)} smaller parts are not listed.</p>}
    </section>
  );
}

type KeepProps = { readonly fields: Fields; readonly flows: Flows; readonly answer: PolicyAnswer };

/**
 * A link to the form for a new assertion, filled in so that the node refuses each later policy write that
 * changes this answer.
 */
function Keep({ fields, flows, answer }: KeepProps) {
  const assertion = assertionOf(fields, flows, answer);
  if (assertion === null || !session.mayWrite.value) return null;
  const isSo = 'only' in assertion || answer.answer in assertion;
  const refused =
    'only' in assertion
      ? 'lets another source through'
      : 'always' in assertion
        ? 'denies such a flow'
        : 'lets such a flow through';
  return (
    <p>
      <a class="button" href={addressOf('policy', { view: 'assertions', new: JSON.stringify(assertion) })}>
        {isSo ? 'Keep it as an assertion…' : 'Require it by an assertion…'}
      </a>{' '}
      <span class="muted">The node then refuses each write that {refused}.</span>
    </p>
  );
}
