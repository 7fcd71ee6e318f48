import { signal } from '@preact/signals';
import { exact, span } from '../format.js';

/** The present time in milliseconds. All relative times on the page change together. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 1_000);

type Props = {
  /** A time as the API writes it, or in milliseconds. */
  readonly at: string | number;
};

/** "3 min ago", with the exact time for a pointer that rests on it. */
export function Ago({ at }: Props) {
  const seconds = (now.value - new Date(at).getTime()) / 1_000;
  const text = seconds < -1 ? `in ${span(-seconds)}` : seconds < 1 ? 'now' : `${span(seconds)} ago`;
  return <Exact at={at}>{text}</Exact>;
}

/** "3 min": how long a state lasts already. */
export function Lasting({ at }: Props) {
  return <Exact at={at}>{span((now.value - new Date(at).getTime()) / 1_000)}</Exact>;
}

function Exact({ at, children }: Props & { readonly children: string }) {
  return (
    <time dateTime={new Date(at).toISOString()} title={exact(at)}>
      {children}
    </time>
  );
}
