import type { Command } from 'commander';
import { CliError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { isNamed } from '#cli/errors/system-error.js';
import type { Terminal } from '#cli/output/terminal.js';
import type { Config } from '#config/config.js';
import { ConfigError } from '#config/config-problem.js';
import type { Environment } from '#config/config-source.js';
import { type ReadConfig, readConfig } from '#config/load.js';
import { reasonOf } from '#files/system-failure.js';

export function addNodeCommands(program: Command, terminal: Terminal, end: End): void {
  program
    .command('run')
    .description('run a node in the foreground until SIGTERM')
    .requiredOption('--config <file>', 'the configuration file')
    .action(async ({ config }: { config: string }) => {
      const read = configToStart(config, terminal.environment);
      const { run } = await import('#main.js');
      end(
        await run(read, () => readConfig(config, terminal.environment)).catch((failure: unknown) => {
          throw startFailure(failure, read.config);
        }),
      );
    });

  program
    .command('start')
    .description('quick start: a node, a client and a server in namespaces of this machine, and a tour')
    .option('--cluster', 'a tour of a cluster: three nodes and etcd')
    .option(
      '--keep',
      'after the tour, leave its nodes running with traffic, and print a link to the console; Ctrl-C ends it',
    )
    .action(async ({ cluster = false, keep = false }: { readonly cluster?: boolean; readonly keep?: boolean }) => {
      const { quickStart } = await import('#cli/tour/quick-start.js');
      const { clusterTour } = await import('#cli/tour/cluster-tour.js');
      end(await (cluster ? clusterTour(keep) : quickStart(keep)));
    });
}

/**
 * Reads the configuration of a node that starts. For a problem in the text of the file, the exit code is 78,
 * after which systemd does not restart weir.service.
 */
function configToStart(file: string, environment: Environment): ReadConfig {
  try {
    return readConfig(file, environment);
  } catch (failure) {
    if (!(failure instanceof ConfigError && failure.isInText)) throw failure;
    throw new CliError(failure.message, { cause: failure, exitCode: 78 });
  }
}

const listenAddress = ({ listen: { host, port } }: Config['api']): string =>
  `${host.includes(':') ? `[${host}]` : host}:${port}`;

/**
 * Converts a failure to start the node to an error message that names the cause: a configuration key, or
 * another process that uses the data folder.
 */
function startFailure(failure: unknown, { node, api }: Config): unknown {
  if (!isNamed(failure)) return failure;
  switch (failure.code) {
    case 'store_locked':
      return new CliError(`another weir process uses the data folder ${node.dataDir}`, { cause: failure });
    case 'EACCES': {
      if ((failure as NodeJS.ErrnoException).syscall !== 'listen') return failure;
      const message = `the API cannot listen on ${listenAddress(api)}: ${reasonOf(failure)}`;
      const fix = 'grant CAP_NET_BIND_SERVICE for ports below 1024, or change api.listen';
      return new CliError(message, { cause: failure, fix });
    }
    default:
      return failure;
  }
}
