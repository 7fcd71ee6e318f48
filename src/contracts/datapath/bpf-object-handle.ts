/**
 * A BPF map or BPF program that one thread lends to other threads of this process: its file descriptor and
 * its kernel id. The number of a closed descriptor can be reused for another object; a different id reveals
 * this. The borrowing thread duplicates the descriptor with `takeObject` of `#libc/object-handle.js`.
 */
export type PassedObject = { readonly fd: number; readonly id: number };
