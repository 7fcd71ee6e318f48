import { type CommandShape, everyCommand, type OptionShape } from './command-shape.js';
import { OWN_CODES } from './error-output.js';
import { EXIT_CODES } from './exit-codes.js';

/** Flags of every command that sends requests to a node. */
const OF_REMOTE = ['--config', '--server', '--token-file'];
const OF_ALL = ['--help'];

/** Returns the text of `docs/cli.md`, which describes all commands. */
export function cliPage(program: CommandShape): string {
  const commands = everyCommand(program).filter(({ commands: below }) => below.length === 0);
  const asked = commands.find(isRemote)?.options.filter((option) => isOneOf(option, OF_REMOTE)) ?? [];
  return [
    '# Command line',
    '',
    '<!-- Written by `npm run docs` from the commands themselves; a test holds this page equal to them. -->',
    '',
    ...INTRODUCTION,
    '',
    '## Exit codes',
    '',
    '| code | means |',
    '|---|---|',
    ...Object.entries(EXIT_CODES).map(([code, meaning]) => `| ${code} | ${meaning} |`),
    '',
    '## Errors',
    '',
    'An error is a sentence, with advice below it. With `--output json` it is one line of JSON, with `--output yaml` one document,',
    'usage errors included: `{"error": {"code", "message", "fix", "problems"}}`. `fix` and `problems` are there where there is',
    'something to say. Each of `problems` has a `pointer` (a flag, or a JSON pointer into the file), a `code`, a `message`, and `where` for a place',
    'in a file (`FILE:LINE:COLUMN`). The error is the last that is written to standard error. `code` is one of [errors.md](errors.md), or:',
    '',
    '| code | means |',
    '|---|---|',
    ...Object.entries(OWN_CODES).map(([code, meaning]) => `| \`${code}\` | ${meaning} |`),
    '',
    '## Which node',
    '',
    'Commands that speak to a node take these flags, and read `WEIR_SERVER` and `WEIR_TOKEN`.',
    '',
    ...optionTable(asked),
    ...commands.flatMap(section),
    '',
  ].join('\n');
}

const INTRODUCTION = [
  'Colours are shown on a terminal only, and not if `NO_COLOR` is set. The data of a command go to standard output, and its messages',
  'to standard error. Tables show times as `3 min ago`, the other formats in UTC. `--output json` and `--output yaml` print the whole answer of the node; commands that',
  'keep running print a line of JSON, or a YAML document, for each item. If a command takes a file, `-` is standard input.',
  '',
  'Commands, flags and their values are completed where a shell has read one of these:',
  '',
  '- bash: `eval "$(weir completion bash)"`',
  '- zsh, behind `autoload -Uz compinit && compinit`: `source <(weir completion zsh)`',
  '- fish: `weir completion fish | source`',
  '',
  'They complete `weir`, not `npx weir`; `npm link` in the repository puts `weir` on the `PATH`.',
];

function section(command: CommandShape): string[] {
  const { path, description, options, arguments: taken } = command;
  const own = options.filter((option) => !isOneOf(option, [...OF_ALL, ...(isRemote(command) ? OF_REMOTE : [])]));
  const words = taken.map(({ name, description: about, takes }) => {
    const choices = typeof takes === 'string' ? '' : ` One of ${takes.map((one) => `\`${one}\``).join(', ')}.`;
    return `- \`${name}\`: ${about === '' ? `a ${name}` : about}.${choices}`;
  });
  return [
    '',
    `## \`${path}\``,
    '',
    `${description.charAt(0).toUpperCase()}${description.slice(1)}.${isRemote(command) ? ' Speaks to a node.' : ''}`,
    '',
    '```',
    `${path} ${command.usage}`,
    '```',
    ...(words.length === 0 ? [] : ['', ...words]),
    ...(own.length === 0 ? [] : ['', ...optionTable(own)]),
  ];
}

const isRemote = ({ options }: CommandShape): boolean => options.some((option) => isOneOf(option, ['--server']));
const isOneOf = ({ names }: OptionShape, wanted: readonly string[]) => names.some((name) => wanted.includes(name));

function optionTable(options: readonly OptionShape[]): string[] {
  return [
    '| flag | |',
    '|---|---|',
    ...options.map(({ flags, description, takes, required }) => {
      const choices = typeof takes === 'string' ? '' : `: ${takes.map((one) => `\`${one}\``).join(', ')}`;
      return `| \`${flags.replaceAll('|', '\\|')}\` | ${description}${choices}${required ? '; required' : ''} |`;
    }),
  ];
}
