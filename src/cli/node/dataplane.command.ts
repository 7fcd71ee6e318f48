import type { Command } from 'commander';
import { type Form, print, printing } from '#cli/client/remote.js';
import { CliError } from '#cli/errors/command-error.js';
import type { End } from '#cli/errors/exit-codes.js';
import { isEnabled, UNIT } from '#cli/init/units.js';
import { table } from '#cli/output/table.js';
import type { Terminal } from '#cli/output/terminal.js';
import { visible, visibleIn } from '#cli/output/visible.js';
import { ConfigError } from '#config/config-problem.js';
import { loadConfig, parseConfig } from '#config/load.js';
import { lacking } from '#libc/proc/capabilities.js';
import type { DataplaneStatus, MachineCheck } from '#main.js';

const UNPOLICED = 3;
const UNFIT = 3;
const DEFAULT_PIN_PATH = '/sys/fs/bpf/weir';
const DEFAULT_DATA_DIR = '/var/lib/weir';

type Options = { readonly config?: string; readonly pinPath?: string };

/**
 * Adds `weir dataplane check | status | detach`, which act on the kernel of this machine and on the current
 * network namespace.
 */
export function addDataplaneCommands(program: Command, terminal: Terminal, end: End): void {
  const dataplane = program.command('dataplane').description('enforcement in the kernel');

  printing(dataplane.command('check'))
    .description(
      'check whether this user on this machine can enforce a configuration, and change nothing; exits with 3 if not',
    )
    .requiredOption('--config <file>', 'the configuration file of the node; `-` reads standard input')
    .action(async ({ config, output }: { config: string; output: Form }) => {
      const { checkMachine } = await import('#main.js');
      const { environment } = terminal;
      const check = await checkMachine(
        config === '-'
          ? parseConfig(await terminal.input(), 'standard input', environment).config
          : loadConfig(config, environment),
      );
      print(terminal, output, check, checkText);
      if (check.missing.length > 0 || check.faults.length > 0) end(UNFIT);
    });

  printing(local(dataplane.command('status')))
    .description(
      'show the datapath in the kernel, with or without a running node; exits with 3 while an interface is unpoliced',
    )
    .action(async ({ output, ...options }: Options & { output: Form }) => {
      requireSight();
      const { readDataplaneStatus } = await import('#main.js');
      const status = await readDataplaneStatus(placeInSpiteOf(options, terminal));
      print(terminal, output, output === 'table' ? status : withNumbers(status), () => text(visibleIn(status)));
      if (unpolicedIn(status).length > 0) end(UNPOLICED);
    });

  local(dataplane.command('detach'))
    .description(
      'remove programs, pins and guard, and empty the boot file of the guard: the node enforces no policy afterwards',
    )
    .action(async (options: Options) => {
      requireSight();
      const { detachDataplane } = await import('#main.js');
      const { hooks, maps, guard, bootFile } = await detachDataplane(placeOf(options, terminal));
      for (const { interface: name, direction } of hooks)
        terminal.out(`removed the program on ${direction} of ${visible(name)}\n`);
      for (const folder of maps) terminal.out(`removed ${folder}\n`);
      if (guard) terminal.out('removed the guard\n');
      if (bootFile) terminal.out('emptied the boot file of the guard\n');
      if (hooks.length === 0 && maps.length === 0 && !guard) terminal.out('nothing was attached\n');
      terminal.out('the dataplane is detached: this node is unpoliced\n');
      if (isEnabled()) {
        terminal.out(
          `${UNIT} is enabled: the next boot enforces the policy again, unless you run: systemctl disable ${UNIT}\n`,
        );
      }
    });
}

/**
 * Throws if this process may not list BPF programs. Without this check, a policed node would appear as
 * unpoliced.
 */
function requireSight(): void {
  const missing = lacking(['CAP_BPF', 'CAP_NET_ADMIN']);
  if (missing.length > 0)
    throw new CliError(`this user cannot see the datapath in the kernel, without ${missing.join(' and ')}`, {
      fix: 'run the command as root',
    });
}

function checkText({ missing, faults, warnings }: MachineCheck): string {
  const unfit = [...missing.map(({ sentence }) => sentence), ...faults];
  const lines = [
    ...unfit.map((text) => `FAILS    ${text}`),
    ...warnings.map((text) => `warning  ${text}`),
    unfit.length === 0 ? 'this machine can enforce the configuration' : 'this machine cannot enforce the configuration',
  ];
  return `${lines.join('\n')}\n`;
}

function local(command: Command): Command {
  return command
    .option('--config <file>', 'the configuration file of the node')
    .option(
      '--pin-path <path>',
      `dataplane.pin_path of the node (default: that of --config, else ${DEFAULT_PIN_PATH})`,
    );
}

/**
 * Returns the pin path like `placeOf`, but ignores an invalid configuration file and prints its problems as a
 * warning. The state of the kernel can be shown without the file.
 */
function placeInSpiteOf(options: Options, terminal: Terminal): ReturnType<typeof placeOf> {
  try {
    return placeOf(options, terminal);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const { config: _, ...others } = options;
    const place = placeOf(others, terminal);
    terminal.err(
      `warning: ${error.message}\nwarning: the kernel is shown without this file, with the pins in ${place.pinPath}\n`,
    );
    return place;
  }
}

function placeOf({ config, pinPath }: Options, { environment }: Terminal) {
  const loaded = config === undefined ? null : loadConfig(config, environment);
  const dataplane = loaded?.dataplane ?? null;
  if (config !== undefined && dataplane === null && pinPath === undefined) {
    throw new CliError(`${config} has no section dataplane`, {
      exitCode: 2,
      fix: 'give the folder of the pins with --pin-path',
    });
  }
  // With a pin path and no configuration, the data folder of the node is unknown.
  const dataDir = loaded?.node.dataDir ?? (pinPath === undefined ? DEFAULT_DATA_DIR : undefined);
  const place = {
    pinPath: pinPath ?? dataplane?.pinPath ?? DEFAULT_PIN_PATH,
    ...(dataDir === undefined ? {} : { dataDir }),
  };
  if (dataplane === null) return place;
  const { interfaces, markMask, reversePath, policeLocal, ipv6 } = dataplane;
  return { ...place, configured: { interfaces, markMask, reversePath, policeLocal, ipv6 } };
}

/** Converts bigint values to numbers, because JSON has no bigint. */
const withNumbers = (status: DataplaneStatus): unknown =>
  JSON.parse(JSON.stringify(status, (_, value: unknown) => (typeof value === 'bigint' ? Number(value) : value)));

/**
 * Returns the interfaces on which no policy is enforced. Without a configuration, the expected interfaces are
 * unknown; then only the absence of all hooks counts as an error.
 */
const unpolicedIn = ({ hooks, unpoliced }: DataplaneStatus): readonly string[] =>
  hooks.length === 0 && unpoliced.length === 0 ? ['every interface: no program is attached'] : unpoliced;

function text(status: DataplaneStatus): string {
  const { owner, inForce, forwarding, ipv6Forwarding, hooks, guardStands, sets, maps, sweep, counters, drops } = status;
  const facts: [string, string][] = [
    ['pins', sets.length === 0 ? `${status.pinPath} (none)` : sets.join(', ')],
    [
      'process',
      owner === null
        ? inForce === null
          ? 'none'
          : 'none: the kernel enforces the last policy'
        : `${owner.pid} (${owner.command})`,
    ],
    [
      'in force',
      inForce === null
        ? 'nothing'
        : `generation ${inForce.generation}, epoch ${inForce.epoch}, layout ${inForce.layout}, image ${inForce.imageSha256.slice(0, 12)}`,
    ],
    ...(inForce?.since == null ? [] : [['since', inForce.since] as [string, string]]),
    ['guard', guardStands === null ? 'not known without --config' : guardStands ? 'stands' : 'MISSING or changed'],
    ...(forwarding === null ? [] : [['forwarding', `${forwarding.way}: ${forwarding.reason}`] as [string, string]]),
    ...(ipv6Forwarding === null
      ? []
      : [['IPv6 forwarding', `${ipv6Forwarding.way}: ${ipv6Forwarding.reason}`] as [string, string]]),
    ...(sweep === null
      ? []
      : [
          [
            'last sweep',
            `${(sweep.agoMs / 1000).toFixed(1)} s ago, took ${sweep.tookMs.toFixed(2)} ms: ${sweep.flows} flows, ${sweep.halfOpen} half-open`,
          ] as [string, string],
        ]),
    ...unpolicedIn(status).map((name): [string, string] => ['UNPOLICED', name]),
    ...status.renamed.map(({ from, to }): [string, string] => ['RENAMED', `${from} is ${to} now, and stays policed`]),
  ];
  const parts = [facts.map(([name, value]) => `${name.padEnd(12)}${value}\n`).join('')];
  if (hooks.length > 0) {
    parts.push(
      table(
        ['INTERFACE', 'HOOK', 'BY', 'PROGRAM', 'ID', 'TAG', 'LAYOUT', 'PINS'],
        hooks.map(({ interface: name, direction, by, program, layout, pinPath }) => [
          name,
          direction,
          by,
          program.name,
          `${program.id}`,
          program.tag,
          `${layout ?? '-'}`,
          pinPath ?? 'nowhere',
        ]),
      ),
    );
  }
  if (maps.length > 0) {
    parts.push(
      table(
        ['MAP', 'ENTRIES', 'CAPACITY', 'KIB'],
        maps.map(({ name, entries, capacity, bytes }) => [
          name,
          `${entries ?? '-'}`,
          `${capacity}`,
          `${Math.ceil(bytes / 1024)}`,
        ]),
      ),
    );
  }
  const counted = [
    ...Object.entries(counters ?? {}),
    ...Object.entries(drops).map(([name, n]) => [`drop ${name}`, n] as const),
  ];
  const seen = counted.filter(([, { packets }]) => packets > 0n);
  if (seen.length > 0) {
    parts.push(
      table(
        ['COUNTED', 'PACKETS', 'BYTES'],
        seen.map(([name, { packets, bytes }]) => [name, `${packets}`, `${bytes}`]),
      ),
    );
  }
  return parts.join('\n');
}
