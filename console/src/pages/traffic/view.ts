/** The state of the page that its URL contains. */
export type View = { readonly tab: string; readonly filter: string; readonly scope: string; readonly order: string };

export const viewOf = (search: URLSearchParams): View => ({
  tab: search.get('tab') ?? '',
  filter: search.get('filter') ?? '',
  scope: search.get('scope') ?? '',
  order: search.get('order') ?? '',
});
