import { createRequire } from 'node:module';
import { Command, type CommanderError } from 'commander';
import { addClusterCommands } from '#cli/cluster/cluster.command.js';
import { addCompletionCommands } from '#cli/completion/completion.command.js';
import { CliError } from '#cli/errors/command-error.js';
import { type End, EXIT_CODES } from '#cli/errors/exit-codes.js';
import { addCaCommands } from '#cli/node/ca.command.js';
import { addConfigCommands } from '#cli/node/config.command.js';
import { addConsoleCommand } from '#cli/node/console.command.js';
import { addDataplaneCommands } from '#cli/node/dataplane.command.js';
import { addDnsCacheCommand } from '#cli/node/dns-cache.command.js';
import { addNodeCommands } from '#cli/node/node.command.js';
import { addPerformanceModeCommand } from '#cli/node/performance-mode.command.js';
import { addStatusCommand } from '#cli/node/status.command.js';
import { addSysdumpCommand } from '#cli/node/sysdump.command.js';
import { addTokenCommands } from '#cli/node/token.command.js';
import { addFindingsCommand } from '#cli/observe/findings.command.js';
import { addFlowsCommands } from '#cli/observe/flows.command.js';
import { addHitsCommand } from '#cli/observe/hits.command.js';
import { addWiretapCommand } from '#cli/observe/wiretap.command.js';
import type { Terminal } from '#cli/output/terminal.js';
import { addInitCommand } from './init/init.command.js';
import { addIntegrationCommands } from './integration/integration.command.js';
import { addAssertionsCommands } from './policy/assertions.command.js';
import { addPolicyCommands } from './policy/policy.command.js';

const { version } = createRequire(import.meta.url)('weir/package.json') as { version: string };

/**
 * Creates the `weir` command with all subcommands. `help` is called with the help of a command that lacks its
 * subcommand.
 */
export function commandTree(
  terminal: Terminal,
  end: End,
  help: (text: string) => void = (text) => terminal.err(text),
): Command {
  const program = new Command('weir')
    .description('network policy, enforced by the kernel and managed over HTTP')
    .version(version, '-V, --version', 'print the version')
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: help, outputError: () => {} })
    .addHelpText('after', () => {
      const codes = Object.entries(EXIT_CODES).map(([code, meaning]) => `  ${code}  ${meaning}\n`);
      return `\nExit codes:\n${codes.join('')}`;
    });
  addNodeCommands(program, terminal, end);
  addInitCommand(program, terminal);
  addConfigCommands(program, terminal);
  addDataplaneCommands(program, terminal, end);
  addStatusCommand(program, terminal, end);
  addPolicyCommands(program, terminal, end);
  addAssertionsCommands(program, terminal);
  addHitsCommand(program, terminal);
  addFlowsCommands(program, terminal);
  addFindingsCommand(program, terminal);
  addWiretapCommand(program, terminal);
  addDnsCacheCommand(program, terminal);
  addPerformanceModeCommand(program, terminal);
  addConsoleCommand(program, terminal);
  addSysdumpCommand(program, terminal);
  addIntegrationCommands(program, terminal);
  addCaCommands(program, terminal);
  addTokenCommands(program, terminal);
  addClusterCommands(program, terminal);
  addCompletionCommands(program, terminal);
  addHelpCommand(program);
  throwUsage(program, 'weir');
  return program;
}

/**
 * Makes each usage error a `CliError` that names the help of its command, such as `weir init --help`. A
 * command without its subcommand stays an error of Commander, which has printed the help.
 */
function throwUsage(command: Command, path: string): void {
  command.exitOverride((error) => {
    throw error.exitCode === 0 || error.code === 'commander.help' ? error : usageError(error, path);
  });
  for (const below of command.commands) throwUsage(below, `${path} ${below.name()}`);
}

function usageError(error: CommanderError, path: string): CliError {
  const [message = '', suggestion] = error.message.replace(/^error: /, '').split('\n');
  const hint =
    suggestion === undefined ? '' : `${suggestion.replace(/^\(D|\)$/g, (part) => (part === ')' ? '' : 'd'))} `;
  return new CliError(message, { cause: error, exitCode: 2, fix: `${hint}\`${path} --help\` shows the usage` });
}

/**
 * Adds a help command for commands of several words, such as `weir help policy diff`. Commander's own help
 * command accepts only one word.
 */
function addHelpCommand(program: Command): void {
  program
    .helpCommand(false)
    .command('help')
    .description('the help of a command')
    .argument('[command...]', 'the full name of a command, such as `policy diff`')
    .action((words: readonly string[]) => {
      let shown = program;
      for (const word of words) {
        const below = shown.commands.find((command) => command.name() === word);
        if (below === undefined) return shown.error(`error: unknown command '${word}'`);
        shown = below;
      }
      shown.help();
    });
}
