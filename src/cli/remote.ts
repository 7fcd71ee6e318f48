import { type Command, Option } from 'commander';
import type { z } from 'zod';
import type { ServerOptions } from './client.js';
import { CliError } from './error.js';

export type Output = ServerOptions & { readonly output: 'table' | 'json' };

/** The flags of every command that prints what a node says. */
export function remote(command: Command): Command {
  return reaching(command).addOption(
    new Option('--output <form>', 'how to print').choices(['table', 'json']).default('table'),
  );
}

/** The flags of every command that speaks to a node. */
export function reaching(command: Command): Command {
  return command
    .option('--config <file>', 'the configuration file of a node on this machine: its address and its admin.token')
    .option('--server <url>', 'the node (default: WEIR_SERVER, else http://127.0.0.1:8080)')
    .option('--token-file <file>', 'a file with a token (default: WEIR_TOKEN, else /var/lib/weir/admin.token)');
}

export function understood<T>(schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer);
  if (!parsed.success)
    throw new CliError('the server answered with something else than was asked for; is it a Weir node?');
  return parsed.data;
}

/** A path with parameters; one that has several values is repeated, and one that is `true` has none. */
export function withQuery(path: string, parameters: Readonly<Record<string, Parameter>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === false) continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return query.size === 0 ? path : `${path}?${query.toString()}`;
}
export type Parameter = string | number | boolean | readonly string[] | undefined;
