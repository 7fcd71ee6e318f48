/**
 * A BPF map or program that one thread of this process lends to the others: its descriptor and its id in the
 * kernel. The id shows whether the descriptor was closed meanwhile and its number reused for another object.
 * `takeObject` of `#libc/passed-object.js` duplicates it.
 */
export type PassedObject = { readonly fd: number; readonly id: number };
