/** The state that the address of the page keeps. */
export type View = { readonly tab: string; readonly filter: string; readonly scope: string; readonly order: string };

export const viewOf = (search: URLSearchParams): View => ({
  tab: search.get('tab') ?? '',
  filter: search.get('filter') ?? '',
  scope: search.get('scope') ?? '',
  order: search.get('order') ?? '',
});
