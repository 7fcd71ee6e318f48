import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

const TYPED_MS = 300;

type Props = {
  /** The filter in the address. */
  readonly text: string;
  readonly placeholder: string;
  readonly label?: string;
  readonly describedBy?: string;
  /** Called a little after the last key. */
  readonly change: (text: string) => void;
};

/** The text field of a filter. A link, and the back button, change it too. */
export function SearchField({ text, placeholder, label = 'Filter', describedBy, change }: Props) {
  const typed = useSignal(text);
  useEffect(() => {
    typed.value = text;
  }, [text]);
  useEffect(() => {
    if (typed.value.trim() === text) return;
    const timer = setTimeout(() => change(typed.value.trim()), TYPED_MS);
    return () => clearTimeout(timer);
  }, [typed.value]);
  return (
    <label class="field wide">
      {label}
      <input
        data-search
        type="search"
        placeholder={placeholder}
        aria-describedby={describedBy}
        spellcheck={false}
        autocomplete="off"
        value={typed.value}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
        }}
      />
    </label>
  );
}
