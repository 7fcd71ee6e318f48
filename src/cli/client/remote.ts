import { type Command, Option } from 'commander';
import { stringify } from 'yaml';
import type { z } from 'zod';
import { CliError } from '#cli/errors/command-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visibleIn, visibleLines } from '#cli/output/visible.js';
import type { ServerOptions } from './client.js';

const FORMS = ['table', 'json', 'yaml'] as const;
export type Form = (typeof FORMS)[number];
export type Output = ServerOptions & { readonly output: Form };

/** Adds all flags of commands that print data from a node: the flags of `reaching` and of `printing`. */
export function remote(command: Command, forms: readonly Form[] = FORMS): Command {
  return printing(reaching(command), forms);
}

/** Adds the command-line flags that select the node and the API token. */
export function reaching(command: Command): Command {
  return command
    .option('--config <file>', 'the configuration file of a node on this machine: its address and its admin.token')
    .option('--server <url>', 'the node (default: WEIR_SERVER, else http://127.0.0.1:8080)')
    .option('--token-file <file>', 'a file with a token (default: WEIR_TOKEN, else /var/lib/weir/admin.token)');
}

/** Adds the flag `--output`, which selects the output form. The first of `forms` is the default. */
export function printing(command: Command, forms: readonly Form[] = FORMS): Command {
  const [first = 'table'] = forms;
  return command.addOption(new Option('-o, --output <form>', 'how to print').choices(forms).default(first));
}

/**
 * Prints a value in the selected form. `text` formats the value for the form `table`; it receives a copy
 * without control characters.
 */
export function print<T>(terminal: Terminal, form: Form, value: T, text: (shown: T) => string): void {
  terminal.out(form === 'table' ? visibleLines(text(visibleIn(value))) : serialised(form, value));
}

export function serialised(form: 'json' | 'yaml', value: unknown): string {
  return form === 'json'
    ? `${JSON.stringify(value, null, 2)}\n`
    : stringify(value, { aliasDuplicateObjects: false, lineWidth: 0 });
}

export function parseReply<T>(schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer);
  if (!parsed.success) throw new CliError('the server sent an unexpected response; is it a Weir node?');
  return parsed.data;
}

/** Repeats a parameter for each element of a list. Omits the values `undefined`, `null` and `false`. */
export function withQuery(path: string, parameters: Readonly<Record<string, Parameter>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === null || value === false) continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return query.size === 0 ? path : `${path}?${query.toString()}`;
}
export type Parameter = string | number | boolean | null | readonly string[] | undefined;

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
