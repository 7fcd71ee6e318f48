import { computed, signal } from '@preact/signals';

const BASE = '/console/';

const location$ = signal(new URL(location.href));
addEventListener('popstate', () => {
  location$.value = new URL(location.href);
});

/** The path of the present page below `/console/`, without slashes at its ends; empty for the overview. */
export const path = computed(() => location$.value.pathname.slice(BASE.length).replace(/\/+$/, ''));
/** The query of the URL. It contains the state of a page that a link must restore. */
export const query = computed(() => location$.value.searchParams);

/** Returns the URL of a page with a query. Omits undefined and empty values. */
export function addressOf(page: string, values: Readonly<Record<string, string | undefined>> = {}): string {
  const search = new URLSearchParams(
    Object.entries(values).flatMap(([name, value]) => (value === undefined || value === '' ? [] : [[name, value]])),
  ).toString();
  return `${BASE}${page}${search === '' ? '' : `?${search}`}`;
}

/** Opens another page. `replace`: the back button does not return to the present page. */
export function go(address: string, { replace = false } = {}): void {
  history[replace ? 'replaceState' : 'pushState'](null, '', address);
  location$.value = new URL(location.href);
}

/**
 * Handles a click on a link to a page of the console. The browser handles other links, and clicks with a
 * modifier key.
 */
export function followLink(event: MouseEvent): void {
  const link = (event.target as Element).closest('a');
  if (link === null || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.target !== '' || link.hasAttribute('download')) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(BASE)) return;
  event.preventDefault();
  go(url.pathname + url.search);
}
