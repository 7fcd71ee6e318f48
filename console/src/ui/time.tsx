import { signal } from '@preact/signals';
import { exact, span } from '../format.js';

/**
 * The present time in milliseconds. All relative times on a page use it, so they change at the same moment.
 */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 1_000);

type Props = {
  /** A time as text of the API, or in milliseconds. */
  readonly at: string | number;
};

/** Shows the time that has passed, such as "3 min ago". The exact time is in the tooltip. */
export function Ago({ at }: Props) {
  const seconds = (now.value - new Date(at).getTime()) / 1_000;
  const text = seconds < -1 ? `in ${span(-seconds)}` : seconds < 1 ? 'now' : `${span(seconds)} ago`;
  return <Exact at={at}>{text}</Exact>;
}

/** Shows for how long a state has lasted, such as "3 min". */
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
