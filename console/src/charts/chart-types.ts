/** Returns the `types` of a chart. XState uses only the type of the result. */
export const chartTypes = <Context, Event, Input = undefined>() =>
  ({}) as { readonly context: Context; readonly events: Event; readonly input: Input };
