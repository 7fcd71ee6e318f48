/** The title of a column. `number`: its cells have numbers. `hidden`: only screen readers read the title. */
type Column = string | { readonly number: string } | { readonly hidden: string };

type Props = {
  readonly columns: readonly Column[];
  /** Whether only screen readers read the titles. */
  readonly isHidden?: boolean;
};

/** The head of a table. */
export function TableHead({ columns, isHidden = false }: Props) {
  return (
    <thead class={isHidden ? 'visually-hidden' : undefined}>
      <tr>
        {columns.map((column) => {
          if (typeof column === 'string') return <th scope="col">{column}</th>;
          if ('hidden' in column)
            return (
              <th scope="col">
                <span class="visually-hidden">{column.hidden}</span>
              </th>
            );
          return (
            <th scope="col" class="number">
              {column.number}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}
