import { styleText } from 'node:util';
import type { Terminal } from './terminal.js';

type Format = Parameters<typeof styleText>[0];

/** Functions that colour a text. On a terminal without colours, the functions return the text unchanged. */
export type Style = ReturnType<typeof styleOf>;

export function styleOf({ colours }: Pick<Terminal, 'colours'>) {
  const as = (format: Format) => (text: string) =>
    colours ? styleText(format, text, { validateStream: false }) : text;
  const [good, bad, warn, lost] = [as('green'), as('red'), as('yellow'), as('magenta')];
  const ofVerdict: Readonly<Record<string, (text: string) => string>> = { allow: good, deny: bad, audit: warn };
  return {
    good,
    bad,
    warn,
    lost,
    dim: as('dim'),
    bold: as('bold'),
    /** Colours a text by an action or verdict, such as `allow` or `deny`. */
    verdict: (word: string, text = word) => ofVerdict[word]?.(text) ?? text,
  };
}
