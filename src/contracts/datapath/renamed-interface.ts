/**
 * A policed interface that no name in `dataplane.interfaces` matches any more: it was policed by the name
 * `from`, and its name is `to` now. It stays policed (D20).
 */
export type RenamedInterface = { readonly from: string; readonly to: string };

/**
 * How a change of the configured names treats renamed interfaces. `keep`: they stay policed while a
 * configured name matches their former name. `release`: their policing ends. `restore`: the interfaces that
 * the last `release` released are policed again.
 */
export type RenamedPolicing = 'keep' | 'release' | 'restore';

export function renamedSentence({ from, to }: RenamedInterface): string {
  return `${from} is ${to} now, and stays policed: put ${to} into dataplane.interfaces, rename the interface back, or end its policing with weir config reload --allow-unpoliced`;
}
