import { type Form, serialised } from '#cli/client/remote.js';
import { visibleIn, visibleLines } from './visible.js';

/**
 * Formats one value of a sequence as one line of JSON, as one YAML document, or as text. `text` receives a
 * copy without control characters.
 */
export function streamed<T>(form: Form, value: T, text: (shown: T) => string): string {
  switch (form) {
    case 'json':
      return `${JSON.stringify(value)}\n`;
    case 'yaml':
      return `---\n${serialised('yaml', value)}`;
    case 'table':
      return visibleLines(text(visibleIn(value)));
  }
}
