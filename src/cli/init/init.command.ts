import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { largest } from '#arrays/extremes.js';
import { createClient } from '#cli/client/client.js';
import { CliError } from '#cli/errors/command-error.js';
import { readingProblem } from '#cli/files/file-warnings.js';
import { unitUser, unitUserName } from '#cli/files/node-user.js';
import { waitUntilReady } from '#cli/node/node-readiness.js';
import { notIpv4, readStatus, type Status, statusText } from '#cli/node/status.command.js';
import { styleOf } from '#cli/output/style.js';
import type { Terminal } from '#cli/output/terminal.js';
import type { Source } from '#cli/policy/policy-source.js';
import type { Config } from '#config/config.js';
import { ConfigError } from '#config/config-problem.js';
import type { Environment } from '#config/config-source.js';
import { parseConfig, type ReadConfig } from '#config/load.js';
import { MAX_BYTES, readBoundedSync } from '#files/bounded-file.js';
import { type Active, checkedSource, checkFirstPolicy, firstPolicy } from './first-policy.js';
import { forwardingIpv6, interfaceProblems, uncovered } from './init-checks.js';
import {
  configText,
  type InitSettings,
  type Mode,
  modeIn,
  policyPath,
  policyText,
  replaceFile,
  updatedConfig,
  updatedPolicy,
} from './init-files.js';
import { checkMachineFor } from './machine-check.js';
import {
  addDropIn,
  hasSystemd,
  isRunning,
  nftablesWarnings,
  shadowedUnits,
  startUnits,
  UNIT,
  unitExists,
} from './units.js';

const DEFAULT_CONFIG = '/etc/weir/weir.yaml';
const READY_WITHIN_MS = 60_000;

type Options = {
  readonly interfaces: readonly string[];
  readonly mode?: Mode;
  readonly config: string;
  readonly dataDir?: string;
  readonly force?: true;
  readonly start: boolean;
  readonly dryRun?: true;
};
type Draft = { readonly path: string; readonly text: string };
/**
 * The drafts of the files that `weir init` writes. `dataplane`: the section `dataplane` of the configuration.
 */
type Drafts = {
  readonly drafts: readonly [Draft, ...Draft[]];
  readonly policy: Source;
  readonly dataplane: Config['dataplane'];
};
type Existing = { readonly text: string; readonly config: Config };

export function addInitCommand(program: Command, terminal: Terminal): void {
  program
    .command('init')
    .description('configure this machine as a node, and start the node; needs root')
    .requiredOption(
      '--interfaces <names>',
      'the interfaces to police, separated by commas: both sides of a gateway',
      listed,
    )
    .addOption(
      new Option(
        '--mode <mode>',
        'audit denies nothing by policy, and records what the policy would deny; enforce denies; without it, a new configuration is a trial in audit, and an existing one keeps its mode',
      ).choices(['audit', 'enforce']),
    )
    .option('--config <file>', 'the configuration file to write; policy.yaml is written beside it', DEFAULT_CONFIG)
    .option('--data-dir <path>', 'node.data_dir of the node (default: /var/lib/weir)')
    .option(
      '--force',
      'change the keys of an existing configuration, and with --mode the mode of policy.yaml and of the active policy; other keys, rules and comments stay',
    )
    .option('--no-start', 'only write the files')
    .option('--dry-run', 'check everything and print the files; change nothing')
    .action(async (options: Options) => {
      if (process.getuid?.() !== 0) throw new CliError('weir init needs root', { fix: 'run it with sudo' });
      const starts = options.start && hasSystemd();
      const config = resolve(options.config);
      const existing = existingAt(config, terminal);
      await check({ ...options, config }, existing, starts);
      const settings = settingsOf({ ...options, config }, existing);
      const made = await draftsOf(settings, existing, terminal);
      const { drafts, policy } = made;
      const warnings = checkMachineFor(drafts[0].text, starts);
      for (const warning of [...warnings, ...shadowedUnits(), ...(starts ? nftablesWarnings() : [])])
        terminal.err(`warning: ${warning}\n`);
      // Send a dry run to the running node first: if it refuses the policy or the token, stop before the
      // restart below.
      if (starts && isRunning())
        await checkFirstPolicy(createClient(existing === null ? {} : { config }, terminal), policy, options.mode);
      if (options.dryRun === true) {
        for (const { path, text } of drafts) terminal.out(`# ${path}\n${text}\n`);
        return;
      }
      const [group = 0] = unitUser()?.gids ?? [];
      for (const draft of drafts) {
        replaceFile(draft.path, draft.text, group);
        terminal.out(`wrote ${draft.path}\n`);
      }
      if (made.dataplane?.ipv6 === 'enforce') terminal.out(`${enforcesIpv6(settings)}\n`);
      if (!starts) return terminal.out(byHand(settings, options.start));
      addDropIn();
      terminal.out(`starting ${UNIT}\n`);
      startUnits();
      await show(settings, made, terminal);
    });
}

/** The interface names and alternative names that the kernel accepts. */
const INTERFACE_NAME = /^[^\s/:]{1,127}$/;

function listed(text: string): string[] {
  const names = text.split(',').map((name) => name.trim());
  if (!names.every((name) => INTERFACE_NAME.test(name)))
    throw new InvalidArgumentError('It must be a list of interface names, separated by commas.');
  return names;
}

/** Throws a `CliError` with one sentence for each reason why this machine cannot be configured. */
async function check(
  { interfaces, config, dataDir, force }: Options,
  existing: Existing | null,
  starts: boolean,
): Promise<void> {
  const { missingForDataplane } = await import('#main.js');
  const dropped = uncovered(existing?.config.dataplane?.interfaces ?? [], interfaces);
  const isOther = config !== DEFAULT_CONFIG || dataDir !== undefined;
  const user = unitUser();
  const unreadable = starts && user !== undefined ? readingProblem(config, user) : null;
  const problems = [
    ...(force !== true && existing !== null
      ? [
          `${config} exists already: add --force to change its interfaces, and with --mode the keys of the mode; all others stay.`,
        ]
      : []),
    ...(force === true && dropped.length > 0
      ? [
          `${dropped.join(', ')} would no longer be policed: name it too, or remove it from dataplane.interfaces in ${config} first.`,
        ]
      : []),
    ...interfaceProblems(interfaces),
    ...(await missingForDataplane()).map(({ sentence }) => sentence),
    ...(starts && !unitExists() ? [`There is no unit ${UNIT}: install the package, or give --no-start.`] : []),
    ...(starts && user === undefined
      ? [`There is no user ${unitUserName()}, as whom the unit runs: useradd --system ${unitUserName()}.`]
      : []),
    ...(unreadable === null ? [] : [`${unreadable.message}: ${unreadable.fix}.`]),
    ...(starts && isOther
      ? [
          `${UNIT} reads ${DEFAULT_CONFIG} and keeps its data in /var/lib/weir: give --no-start, and change the units as docs/boot.md shows.`,
        ]
      : []),
  ];
  if (problems.length === 0) return;
  if (problems.length === 1) throw new CliError((problems[0] ?? '').replace(/[.]$/, ''));
  throw new CliError(['this machine cannot be configured:', ...problems].join('\n  '));
}

/** Returns null if there is no file at the path. Throws a `ConfigError` if the file is not valid. */
function existingAt(path: string, { environment }: Terminal): Existing | null {
  if (!existsSync(path)) return null;
  const text = readBoundedSync(path, MAX_BYTES.config).toString();
  return { text, config: parseConfig(text, path, environment).config };
}

/**
 * Returns the settings of the command. Without `--mode`, the mode is the mode of the existing configuration;
 * a new configuration gets the mode `audit`.
 */
function settingsOf(options: Options, existing: Existing | null): InitSettings {
  const present = existing === null || existing.config.policy.fallback === 'allow' ? 'audit' : 'enforce';
  const forwardsIpv6 = forwardingIpv6(options.interfaces).length > 0;
  return { ...options, mode: options.mode ?? present, forwardsIpv6, keepsMode: options.mode === undefined };
}

/**
 * Returns the files to write, with the configuration first, and the policy. Throws a `ConfigError` if the
 * configuration would not be valid, and a `CliError` if the policy is not.
 */
async function draftsOf(settings: InitSettings, existing: Existing | null, { environment }: Terminal): Promise<Drafts> {
  const policy = policyPath(settings);
  const text =
    existing === null
      ? configText(settings)
      : updatedConfig(existing.text, existing.config.dataplane?.interfaces ?? [], settings);
  const { config } = parsedDraft(text, settings, environment);
  const before = existsSync(policy) ? readFileSync(policy, 'utf8') : null;
  if (before !== null && existing === null && settings.keepsMode && modeIn(before) === 'enforce')
    throw new CliError(`the mode of ${policy} is enforce: give --mode enforce, or --mode audit for a trial`);
  const after =
    before === null ? policyText(settings) : settings.keepsMode ? before : updatedPolicy(before, settings.mode);
  return {
    drafts: [{ path: settings.config, text }, ...(after === before ? [] : [{ path: policy, text: after }])],
    policy: await checkedSource(after, policy, settings.mode),
    dataplane: config.dataplane,
  };
}

/**
 * Parses a configuration that this command is about to write. The file was valid before the flags were
 * applied, so an error comes from a flag.
 */
function parsedDraft(text: string, { config }: InitSettings, environment: Environment): ReadConfig {
  try {
    return parseConfig(text, config, environment);
  } catch (error) {
    if (!(error instanceof ConfigError && error.isInText)) throw error;
    throw new CliError(error.message, { cause: error, exitCode: 2 });
  }
}

/** Puts the policy of the file in force, waits until the node is ready, and prints its state. */
async function show(
  settings: InitSettings,
  { policy, dataplane }: Pick<Drafts, 'policy' | 'dataplane'>,
  terminal: Terminal,
): Promise<void> {
  const { config } = settings;
  const client = createClient({ config }, terminal);
  const active = await firstPolicy(client, policy, settings.keepsMode ? undefined : settings.mode, terminal);
  const readiness = await waitUntilReady(client, READY_WITHIN_MS, terminal.interruption());
  const status = await readStatus(client, readiness);
  terminal.out(`\n${statusText(status, styleOf(terminal))}\n${inForce(settings, active, limitsOf(status, dataplane))}`);
  if (!readiness.ready) throw new CliError('the node is not ready', { fix: `journalctl -u ${UNIT} shows its log` });
}

/** Returns a sentence about `dataplane.ipv6: enforce` in the configuration. */
function enforcesIpv6({ interfaces }: InitSettings): string {
  const forwarding = forwardingIpv6(interfaces);
  const effect = 'the policy decides IPv6 too (dataplane.ipv6: enforce)';
  return forwarding.length === 0 ? effect : `${forwarding.join(', ')} forwards IPv6: ${effect}`;
}

/** Returns a sentence about the packets that no policy decides, with their number on this node. */
function limitsOf({ stats }: Status, dataplane: Config['dataplane']): string {
  const { passed, dropped } = notIpv4(stats);
  const kinds = [
    ...(dataplane?.ipv6 === 'enforce' ? [] : [{ name: 'forwarded IPv6 packets', passes: dataplane?.ipv6 === 'pass' }]),
    { name: 'packets of other protocols', passes: dataplane?.nonIpv4 === 'pass' },
  ];
  const named = (passes: boolean): string =>
    kinds.flatMap((kind) => (kind.passes === passes ? [kind.name] : [])).join(' and ');
  const [passing, refused] = [named(true), named(false)];
  const effects = [
    ...(passing === ''
      ? []
      : [
          `${passing} pass without a policy (${passed} packets until now; \`weir status\` counts them), and --mode enforce drops them`,
        ]),
    ...(refused === '' ? [] : [`${refused} are dropped (${dropped} packets until now)`]),
  ];
  const own = dataplane?.policeLocal === true ? [] : ['Connections of this machine itself are not policed.'];
  const about = dataplane?.ipv6 === 'enforce' ? 'IPv4 and IPv6' : 'IPv4';
  return [`Policies are about ${about}: ${effects.join('; ')}.`, ...own].join('\n');
}

function inForce(settings: InitSettings, active: Active | null, limits: string): string {
  const { interfaces, mode, keepsMode } = settings;
  const file = policyPath(settings);
  const effect =
    active?.mode === 'audit'
      ? 'the policy denies nothing, and records the packets that it would deny'
      : 'packets that the policy does not allow are denied';
  const next: readonly (readonly [string, string])[] = [
    ['weir findings', active?.mode === 'audit' ? 'packets that the policy would deny' : 'denied packets'],
    [`weir policy apply -f ${file}`, 'after each change of the rules in this file'],
    active?.mode === 'audit' && mode === 'audit'
      ? [
          `weir init --interfaces ${interfaces.join(',')} --mode enforce --force`,
          'end the trial: deny what no rule allows',
        ]
      : active?.mode === mode || keepsMode
        ? ['weir policy explain --src ADDRESS --dst ADDRESS --dst-port PORT', 'which rule decides a flow']
        : [`weir policy apply -f ${file} --mode ${mode}`, `put this file in force as ${mode}`],
  ];
  const width = largest(next.map(([command]) => command.length));
  return [
    active === null
      ? `No policy is active on ${interfaces.join(', ')}: policy.fallback decides.`
      : `In force on ${interfaces.join(', ')}: policy ${active.name} (${active.mode}): ${effect}.`,
    limits,
    'Next:',
    ...next.map(([command, about]) => `  ${command.padEnd(width)}  ${about}`),
    '',
  ].join('\n');
}

function byHand(settings: InitSettings, wantsStart: boolean): string {
  const { config, mode } = settings;
  const file = policyPath(settings);
  const unit = hasSystemd() ? `systemctl enable weir-guard.service ${UNIT} && systemctl restart ${UNIT}` : null;
  const run = unit ?? `weir run --config ${config}`;
  return [
    wantsStart ? 'systemd does not run here, so the node is not started.' : 'The node is not started.',
    `Until its policy is in force, policy.fallback decides: ${mode === 'audit' ? 'all packets pass' : 'all forwarded packets are denied'}.`,
    'Next:',
    `  ${run}`,
    `  weir policy apply -f ${file} --config ${config} --wait`,
    `  weir status --config ${config}`,
    '',
  ].join('\n');
}
