import { type Form, serialised } from './remote.js';

/** One of many values that come one after the other: a line of JSON, a document of YAML, or what people read. */
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
