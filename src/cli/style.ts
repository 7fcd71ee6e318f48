import { styleText } from 'node:util';
import type { Terminal } from './terminal.js';

type Format = Parameters<typeof styleText>[0];

/** Adds colours if the terminal supports them, otherwise returns the text. */
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
    /** Colours an action, a verdict or an effective action. */
    verdict: (word: string, text = word) => ofVerdict[word]?.(text) ?? text,
  };
}
