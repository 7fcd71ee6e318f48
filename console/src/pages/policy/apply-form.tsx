import { useSignal } from '@preact/signals';
import type { ContextFrom } from 'xstate';
import type { Schemas } from '../../api/client.js';
import type { draftChart, PolicyChange, Terms } from '../../charts/draft.chart.js';
import { node, session } from '../../node.js';
import { Failure } from '../../ui/parts.js';

const TIMES: readonly (readonly [seconds: number, words: string])[] = [
  [30, '30 seconds'],
  [60, '60 seconds'],
  [300, '5 minutes'],
  [900, '15 minutes'],
  [3_600, '1 hour'],
];

type Props = {
  readonly context: ContextFrom<typeof draftChart>;
  readonly result: Schemas['PolicyDryRun'];
  readonly record: Schemas['PolicyRecord'] | null;
  readonly isBusy: boolean;
  readonly onApply: (terms: Terms) => void;
  readonly onChoose?: (change: PolicyChange) => void;
};

/**
 * A form with the options of a change: the time to confirm it, a comment, and the assertions that it may
 * break.
 */
export function ApplyForm({ context, result, record, isBusy, onApply, onChoose }: Props) {
  const { change, failure } = context;
  const seconds = useSignal(60);
  const how = useSignal<'confirm' | 'stages' | 'at_once'>('confirm');
  const choiceOf = (value: typeof how.value) => ({
    name: 'confirm',
    isChosen: how.value === value,
    onChoose: () => {
      how.value = value;
    },
  });
  const share = useSignal(10);
  const hold = useSignal(300);
  const isCluster = (node.report.value?.stats.cluster.members.length ?? 0) > 1;
  const comment = useSignal('');
  const overrides = useSignal<readonly string[]>([]);
  const mayWrite = session.mayWrite.value;
  const isActive = record?.active === true;
  // A write changes the policy in force if the policy is active, or if the write makes it active.
  const isOfForce = change.kind === 'delete' ? isActive : isActive || result.active;
  const refusing = result.assertions.filter(({ effect }) => effect !== 'warns');
  const pending = node.report.value?.pending.pending ?? null;
  const submit = (event: Event) => {
    event.preventDefault();
    onApply({
      confirmWithin: isOfForce && how.value === 'confirm' ? seconds.value : null,
      rollout: isOfForce && how.value === 'stages' ? { share: share.value, hold: hold.value } : null,
      comment: comment.value,
      overrides: overrides.value,
    });
  };
  return (
    <form class="panel apply-form" onSubmit={submit}>
      <h3>Apply</h3>
      {change.kind === 'text' && !isActive && onChoose !== undefined && (
        <fieldset>
          <legend>This policy is not in force</legend>
          <Choice
            name="activate"
            label="Only store it"
            isChosen={change.activate === false}
            onChoose={() => onChoose({ ...change, activate: false })}
          />
          <Choice
            name="activate"
            label="Store it and put it in force"
            isChosen={change.activate !== false}
            onChoose={() => onChoose({ ...change, activate: null })}
          />
        </fieldset>
      )}
      {isOfForce && (
        <fieldset>
          <legend>In case the change locks you out</legend>
          <Choice label="Keep it only if I confirm it within" {...choiceOf('confirm')}>
            <Time label="Time to confirm" seconds={seconds} disabled={how.value !== 'confirm'} />
          </Choice>
          {isCluster && (
            <Choice label="In stages: a part of the nodes first, all of them after" {...choiceOf('stages')}>
              <Time label="Time until all nodes follow" seconds={hold} disabled={how.value !== 'stages'} />
              {how.value === 'stages' && (
                <label class="stages">
                  <input
                    type="number"
                    min={1}
                    max={99}
                    required
                    value={share.value}
                    onInput={(event) => {
                      share.value = Number(event.currentTarget.value);
                    }}
                  />{' '}
                  % of the nodes enforce it first, at least one. It is reverted if one of them gets a fault, or denies
                  far more than before.
                </label>
              )}
            </Choice>
          )}
          <Choice label="Keep it at once, without confirmation" {...choiceOf('at_once')} />
        </fieldset>
      )}
      {refusing.length > 0 && (
        <fieldset>
          <legend>Break an assertion on purpose</legend>
          {refusing.map(({ id }) => (
            <label key={id} class="choice">
              <input
                type="checkbox"
                checked={overrides.value.includes(id)}
                onChange={(event) => {
                  const rest = overrides.value.filter((each) => each !== id);
                  overrides.value = event.currentTarget.checked ? [...rest, id] : rest;
                }}
              />
              <span>
                Override <strong>{id}</strong>. The history records it.
              </span>
            </label>
          ))}
        </fieldset>
      )}
      <label class="field">
        Why, for the history (optional)
        <input
          maxLength={500}
          autocomplete="off"
          value={comment.value}
          onInput={(event) => {
            comment.value = event.currentTarget.value;
          }}
        />
      </label>
      {pending !== null && (
        <p class="muted">
          Generation {pending.generation} waits for its confirmation. Applying this change confirms it, unless this
          change must be confirmed too.
        </p>
      )}
      <Failure failure={failure} />
      {!mayWrite && <p class="muted">This session may only read. Sign in with an admin token to apply the change.</p>}
      <button type="submit" class="primary" disabled={isBusy || !mayWrite}>
        {isBusy ? 'Applying…' : change.kind === 'delete' ? 'Delete it' : 'Apply'}
      </button>
    </form>
  );
}

type TimeProps = { readonly label: string; readonly seconds: { value: number }; readonly disabled: boolean };

function Time({ label, seconds, disabled }: TimeProps) {
  return (
    <select
      aria-label={label}
      value={seconds.value}
      disabled={disabled}
      onChange={(event) => {
        seconds.value = Number(event.currentTarget.value);
      }}
    >
      {TIMES.map(([value, words]) => (
        <option key={value} value={value}>
          {words}
        </option>
      ))}
    </select>
  );
}

type ChoiceProps = {
  readonly name: string;
  readonly label: string;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
  readonly children?: preact.ComponentChildren;
};

function Choice({ name, label, isChosen, onChoose, children }: ChoiceProps) {
  return (
    <div class="choice">
      <label>
        <input type="radio" name={name} checked={isChosen} onChange={onChoose} /> <span>{label}</span>
      </label>
      {children}
    </div>
  );
}
