import { query } from '../router.js';

type Props = {
  readonly label: string;
  readonly tabs: readonly (readonly [id: string, title: string])[];
  /** Returns the URL of a tab. */
  readonly addressOf: (id: string) => string;
};

/** Returns the id of the present tab: the URL parameter `tab`, or without it the first tab. */
export const tabOf = (tabs: Props['tabs']): string => {
  const asked = query.value.get('tab');
  return tabs.find(([id]) => id === asked)?.[0] ?? tabs[0]?.[0] ?? '';
};

/** Links to the tabs of a page. Each tab has its own URL. */
export function Tabs({ label, tabs, addressOf }: Props) {
  const present = tabOf(tabs);
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(([id, title]) => (
        <a key={id} href={addressOf(id)} aria-current={id === present ? 'page' : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}
