import type { Argument, Command, Option } from 'commander';
import { COMPLETE } from '#cli/completion/values.js';
import { KNOWN_VALUES, NODE_VALUES, type NodeValue } from './completion/values.js';

/** A description of a command from which docs/cli.md and the shell completions are generated. */
export type CommandShape = {
  /** The full name of the command, such as `weir policy get`. */
  readonly path: string;
  readonly name: string;
  readonly description: string;
  readonly usage: string;
  readonly options: readonly OptionShape[];
  readonly arguments: readonly { readonly name: string; readonly description: string; readonly takes: Takes }[];
  readonly commands: readonly CommandShape[];
  /** The subcommand that runs if the user gives no subcommand. */
  readonly defaultsTo: string | null;
};
export type OptionShape = {
  /** The flag as help texts show it: `-f, --file <file>`. */
  readonly flags: string;
  /** The short and the long form of the flag. */
  readonly names: readonly string[];
  readonly description: string;
  readonly takes: Takes;
  readonly required: boolean;
};
/**
 * Which values a flag or argument accepts: none, any text, a file, a name that is requested from the node, or
 * one of a list of words.
 */
export type Takes = 'nothing' | 'text' | 'file' | NodeValue | readonly string[];

export function shapeOf(command: Command, above = ''): CommandShape {
  const path = above === '' ? command.name() : `${above} ${command.name()}`;
  const help = command.createHelp();
  return {
    path,
    name: command.name(),
    description: command.description(),
    usage: command.usage(),
    options: help.visibleOptions(command).map(optionOf),
    arguments: command.registeredArguments.map((argument) => ({
      name: argument.name(),
      description: argument.description,
      takes: valuesOf(argument, argument.name()),
    })),
    commands: command.commands.filter((below) => !isHidden(below)).map((below) => shapeOf(below, path)),
    // Read a private property: Commander has no public property for the default subcommand.
    defaultsTo: (command as { readonly _defaultCommandName?: string | null })._defaultCommandName ?? null,
  };
}

/**
 * Returns whether documentation and completions omit the command. Only shell completion scripts call hidden
 * commands.
 */
const isHidden = (command: Command): boolean => command.name() === COMPLETE;

/** Returns a list of the command and all commands below it. */
export function everyCommand(shape: CommandShape): CommandShape[] {
  return [shape, ...shape.commands.flatMap(everyCommand)];
}

function optionOf(option: Option): OptionShape {
  const value = /[<[]([a-z-]+)/.exec(option.flags)?.[1];
  return {
    flags: option.flags,
    names: [option.short, option.long].filter((name) => typeof name === 'string'),
    description: option.description,
    takes: value === undefined ? 'nothing' : valuesOf(option, value),
    required: option.mandatory,
  };
}

function valuesOf({ argChoices }: Pick<Option | Argument, 'argChoices'>, name: string): Takes {
  const known = argChoices ?? KNOWN_VALUES[name];
  if (known !== undefined) return known;
  if (name === 'file' || name === 'path') return 'file';
  return NODE_VALUES.find((value) => value === name) ?? 'text';
}
