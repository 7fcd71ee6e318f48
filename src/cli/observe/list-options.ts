/** The values of options that can be given more than once. Absent: the option was not given. */
export type ListOptions<Name extends string> = { readonly [Each in Name]?: string[] };
