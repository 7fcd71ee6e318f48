/**
 * A BPF map or BPF program that one thread lends to other threads of this process: its file descriptor and
 * its kernel id. A closed descriptor number can be reused for another object, and the id reveals the reuse.
 * The borrowing thread duplicates the descriptor with `takeObject` of `#libc/object-handle.js`.
 */
export type PassedObject = { readonly fd: number; readonly id: number };
