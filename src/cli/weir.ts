import { createRequire } from 'node:module';
import { Command, CommanderError } from 'commander';
import type { Config } from '#config/config.js';
import { loadConfig, readConfig } from '#config/load.js';
import { ConfigError } from '#config/problem.js';
import { addDataplaneCommands } from './dataplane.command.js';
import { CliError } from './error.js';
import { addFlowsCommands } from './flows.command.js';
import { addHitsCommand } from './hits.command.js';
import { addSysdumpCommand } from './sysdump.command.js';
import { processTerminal, type Terminal } from './terminal.js';
import { addTokenCommands } from './token.command.js';

const { version } = createRequire(import.meta.url)('weir/package.json') as { version: string };

/** The `weir` command. Resolves with its exit code: 0 done, 1 not done, 2 wrongly called. */
export async function weir(words: readonly string[], terminal: Terminal = processTerminal): Promise<number> {
  let code = 0;
  const program = new Command('weir')
    .description('network policy, enforced by the kernel and managed over HTTP')
    .version(version, '-V, --version', 'print the version')
    .exitOverride()
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: (text) => terminal.err(text) })
    .showHelpAfterError('(weir --help says more)');

  program
    .command('run')
    .description('run a node in the foreground until SIGTERM')
    .requiredOption('--config <file>', 'the configuration file')
    .action(async ({ config }: { config: string }) => {
      const read = readConfig(config, terminal.environment);
      const { run } = await import('#main.js');
      code = await run(read.config, read.disclosed).catch((failure: unknown) => {
        throw startFailure(failure, read.config);
      });
    });

  program
    .command('start')
    .description('quick start: a node, a client and a server in namespaces of this machine, and a tour')
    .action(async () => {
      const { quickStart } = await import('./quick-start.js');
      code = await quickStart();
    });

  program
    .command('config')
    .description('the configuration file')
    .command('check')
    .description('say everything that is wrong with a configuration file')
    .argument('<file>')
    .action((file: string) => {
      loadConfig(file, terminal.environment);
      terminal.out(`${file} is valid\n`);
    });

  addDataplaneCommands(program, terminal);
  addTokenCommands(program, terminal);
  addHitsCommand(program, terminal);
  addFlowsCommands(program, terminal);
  addSysdumpCommand(program, terminal);

  try {
    await program.parseAsync([...words], { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof ConfigError) terminal.err(`${error.message}\n`);
    else if (error instanceof CliError || isNamed(error)) terminal.err(`weir: ${error.message}\n`);
    else throw error;
    return 1;
  }
}

/** What keeps a node from starting, in the words of its configuration. */
function startFailure(failure: unknown, { node, api }: Config): unknown {
  if (!isNamed(failure)) return failure;
  switch (failure.code) {
    case 'store_locked':
      return new CliError(`another weir process uses the data folder ${node.dataDir}`, { cause: failure });
    case 'EADDRINUSE': {
      const address = `${api.listen.host.includes(':') ? `[${api.listen.host}]` : api.listen.host}:${api.listen.port}`;
      const message = `the address ${address} is in use: end what uses it, or change api.listen`;
      return new CliError(message, { cause: failure });
    }
    default:
      return failure;
  }
}

/** A failure with a code says what happened; anything else is a bug and shows its stack. */
function isNamed(error: unknown): error is Error & { readonly code: string } {
  return error instanceof Error && 'code' in error && typeof error.code === 'string';
}
