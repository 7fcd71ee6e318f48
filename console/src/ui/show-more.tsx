import { full } from '../format.js';

type Props = { readonly all: number; readonly shown: { value: number }; readonly step: number };

/** A button that shows `step` more rows of a list with `all` rows. Renders nothing if all rows are shown. */
export function ShowMore({ all, shown, step }: Props) {
  if (all <= shown.value) return null;
  return (
    <button
      type="button"
      onClick={() => {
        shown.value += step;
      }}
    >
      Show {full(Math.min(step, all - shown.value))} more of {full(all)}
    </button>
  );
}
