import type { Signal } from '@preact/signals';
import type { ComponentChildren, InputHTMLAttributes } from 'preact';

type Props = {
  readonly label: ComponentChildren;
  /** The text of the field. Each key that is typed changes it. */
  readonly text: Signal<string>;
  /** Further attributes of the element. */
  readonly input?: InputHTMLAttributes;
  readonly isWide?: boolean;
  /** Whether the shortcut of the search chooses this field. */
  readonly isSearch?: boolean;
};

/** A field for one line of text, with its label. The browser neither completes the text nor checks its words. */
export function TextField({ label, text, input = {}, isWide = false, isSearch = false }: Props) {
  return (
    <label class={isWide ? 'field wide' : 'field'}>
      {label}
      <input
        {...input}
        data-search={isSearch ? '' : undefined}
        spellcheck={false}
        autocomplete="off"
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
        }}
      />
    </label>
  );
}
