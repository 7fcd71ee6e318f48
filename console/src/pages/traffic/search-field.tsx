import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { TextField } from '../../ui/text-field.js';

const TYPED_MS = 300;

type Props = {
  /** The filter text from the URL. */
  readonly text: string;
  readonly placeholder: string;
  readonly label?: string;
  readonly describedBy?: string;
  /** Called shortly after the user stops typing. */
  readonly change: (text: string) => void;
};

/** The input field of a filter. Links and the back button of the browser change its text too. */
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
    <TextField
      isWide
      isSearch
      label={label}
      text={typed}
      input={{ type: 'search', placeholder, 'aria-describedby': describedBy }}
    />
  );
}
