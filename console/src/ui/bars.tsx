import { full, short } from '../format.js';

type Props = { readonly counts: readonly (readonly [label: string, count: number])[] };

/** A bar chart of counts. The bar of the largest count has the full length. */
export function Bars({ counts }: Props) {
  const largest = Math.max(1, ...counts.map(([, count]) => count));
  return (
    <ul class="bars">
      {counts.map(([label, count]) => (
        <li key={label}>
          <span>{label}</span>
          <meter min={0} max={largest} value={count} aria-label={`${label}: ${count}`} />
          <span class="number" title={full(count)}>
            {short(count)}
          </span>
        </li>
      ))}
    </ul>
  );
}
