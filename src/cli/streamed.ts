import { type Form, serialised } from './remote.js';

/** Formats one value of a sequence as one line of JSON, as one YAML document, or as text. */
export function streamed(form: Form, value: unknown, text: () => string): string {
  switch (form) {
    case 'json':
      return `${JSON.stringify(value)}\n`;
    case 'yaml':
      return `---\n${serialised('yaml', value)}`;
    case 'table':
      return text();
  }
}
