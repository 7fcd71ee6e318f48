import type { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { commandTree } from '#cli/command-tree.js';
import { processTerminal } from '#cli/output/terminal.js';
import { run } from './cli-run.js';

type Listed = { readonly words: readonly string[]; readonly command: Command };

const program = commandTree(processTerminal, () => {});
const commands = (function below(command: Command, words: readonly string[]): Listed[] {
  return [{ words, command }, ...command.commands.flatMap((sub) => below(sub, [...words, sub.name()]))];
})(program, []);

/** No parser or list of choices accepts this value. */
const BAD = '~ bad /';
/** Options that accept any text when they are parsed: the command or the node checks the values later. */
const COLLECTED = ['--header', '--hostname', '--interface', '--override', '--type'];

const parsed = commands.flatMap(({ words, command }) =>
  command.options
    .filter((option) => option.parseArg !== undefined && !COLLECTED.includes(option.long ?? ''))
    .map(
      ({ long, short }) =>
        [[...words, long ?? short ?? '', BAD].join(' '), [...words, long ?? short ?? '', BAD]] as const,
    ),
);
const required = (command: Command): string[] =>
  command.options
    .filter((option) => option.mandatory)
    .flatMap(({ long, argChoices }) => [long ?? '', argChoices?.[0] ?? 'x']);
const withArguments = commands
  .filter(({ command }) => command.registeredArguments.some((argument) => argument.required))
  .map(({ words, command }) => [words.join(' '), [...words, ...required(command)]] as const);
const mandatory = commands.flatMap(({ words, command }) =>
  command.options
    .filter((option) => option.mandatory)
    .map(({ long }) => [`${words.join(' ')} without ${long ?? ''}`, words] as const),
);
const runnable = commands.filter(({ command }) => command.commands.length === 0 && command.name() !== 'help');

describe('wrong usage of a command', () => {
  const help = (words: readonly string[]): string => `\`${['weir', ...words].join(' ')} --help\` shows the usage`;

  it('the tests of wrong usage cover enough commands with parsed values, required arguments and mandatory flags', () => {
    expect([parsed.length > 60, withArguments.length > 8, mandatory.length > 8]).toEqual([true, true, true]);
  });

  it.each(parsed)('a command with an invalid value exits with 2 and names its help: weir %s', async (_, words) => {
    const { code, out, err } = await run(words);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(/^weir: option '.*' argument '~ bad \/' is invalid\. /);
    expect(err).toContain(help(words.slice(0, -2)));
  });

  it.each(withArguments)(
    'a command with a missing argument exits with 2 and names its help: weir %s',
    async (path, words) => {
      const { code, out, err } = await run(words);
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toMatch(/^weir: missing required argument '/);
      expect(err).toContain(help(path.split(' ')));
    },
  );

  it.each(mandatory)('a command with a missing flag exits with 2 and names its help: weir %s', async (_, words) => {
    const { code, out, err } = await run(words);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toMatch(/^weir: required option '/);
    expect(err).toContain(help(words));
  });

  it.each(runnable.map(({ words, command }) => [words.join(' '), words, required(command)] as const))(
    'a command with an unknown flag exits with 2 and names its help: weir %s',
    async (_, words, given) => {
      const { code, out, err } = await run([...words, ...given, '--no-such-flag']);
      expect({ code, out }).toEqual({ code: 2, out: '' });
      expect(err).toMatch(/^weir: unknown option '--no-such-flag'\n/);
      expect(err).toContain(help(words));
    },
  );
});
