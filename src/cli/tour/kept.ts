import { hostname } from 'node:os';
import { join } from 'node:path';
import { firstLine, type NodeProcess, program } from './node-process.js';
import { commandLine, print, WEIR } from './steps.js';
import type { Topology } from './topology.js';

/** One command of the program `tour-web`, and the pause between two runs of it, in ms. */
export type Repeated = { readonly everyMs: number; readonly words: readonly string[] };

/** Starts a process on the client that repeats each command until the topology is removed. */
export async function startTraffic(topology: Topology, commands: readonly Repeated[]): Promise<void> {
  const words = commands.flatMap(({ everyMs, words }) => ['--', String(everyMs), ...words]).slice(1);
  const client = topology.client.start(process.execPath, [program('tour-web'), 'repeat', ...words]);
  await firstLine(client);
}

/**
 * Prints a link to the console of a node, with the command that makes another one, and how to reach it from
 * another machine.
 */
export async function printConsoleLink(node: NodeProcess): Promise<void> {
  print();
  const tokenFile = join(node.folder, 'data', 'admin.token');
  await commandLine({})(['console', '--server', node.url, '--token-file', tokenFile]);
  const { port } = new URL(node.url);
  print('\n   In another terminal, the same command prints another link.');
  print(`   For a browser on another machine, first run there: ssh -L ${port}:127.0.0.1:${port} ${hostname()}`);
}

/** Prints commands that show a node from a terminal, and that use its network. */
export function printCommands(node: NodeProcess, topology: Topology, lines: readonly string[]): void {
  print('\nIn another terminal:');
  print(`   export WEIR_SERVER=${node.url} WEIR_TOKEN=$(cat ${node.folder}/data/admin.token)`);
  for (const line of lines) print(`   ${WEIR} ${line}`);
  print(`   nsenter --net=/run/netns/${topology.client.name} bash   # a shell on the client`);
}
