import { type CommandShape, everyCommand } from '../command-shape.js';

/**
 * Returns the commands that the completion scripts cover. A command with a default subcommand also gets the
 * flags of that subcommand. `weir help` gets the names of all commands.
 */
export function completed(program: CommandShape): CommandShape[] {
  const commands = program.commands.map((command) =>
    command.name === 'help' ? { ...command, commands: named(program.commands, command.path) } : withDefault(command),
  );
  return everyCommand({ ...program, commands });
}

function withDefault(command: CommandShape): CommandShape {
  const chosen = command.commands.find(({ name }) => name === command.defaultsTo);
  const own = new Set(command.options.map(({ flags }) => flags));
  const more = chosen?.options.filter(({ flags }) => !own.has(flags)) ?? [];
  return { ...command, options: [...command.options, ...more], commands: command.commands.map(withDefault) };
}

function named(commands: readonly CommandShape[], above: string): CommandShape[] {
  return commands.map((command) => {
    const path = `${above} ${command.name}`;
    return { ...command, path, options: [], arguments: [], commands: named(command.commands, path) };
  });
}
