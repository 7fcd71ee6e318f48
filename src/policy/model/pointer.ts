/** The steps of a JSON pointer (RFC 6901): object keys and array indexes. */
export type Path = readonly (string | number)[];

export function pointerOf(path: Path): string {
  let pointer = '';
  for (const step of path) pointer += `/${typeof step === 'number' ? step : escapeStep(step)}`;
  return pointer;
}

export function escapeStep(key: string): string {
  return /[~/]/.test(key) ? key.replaceAll('~', '~0').replaceAll('/', '~1') : key;
}
