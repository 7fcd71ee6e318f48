import type { ComponentChildren } from 'preact';

type Props<Value extends string | number> = {
  readonly label: ComponentChildren;
  /** The class beside `field`, which sets the width. */
  readonly kind: 'choice' | 'verdicts';
  readonly value: Value;
  /** The values that can be chosen, with their words. */
  readonly options: readonly (readonly [value: Value, words: string])[];
  readonly onChoose: (value: string) => void;
};

/** A field with a list of values, with its label. */
export function SelectField<Value extends string | number>({ label, kind, value, options, onChoose }: Props<Value>) {
  return (
    <label class={`field ${kind}`}>
      {label}
      <select value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
        {options.map(([each, words]) => (
          <option key={each} value={each}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}
