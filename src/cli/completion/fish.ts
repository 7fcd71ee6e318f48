import type { CommandShape, OptionShape, Takes } from '../command-shape.js';
import { quoted } from './candidates.js';
import { completed } from './completed.js';
import { COMPLETE, NODE_VALUES, type NodeValue } from './values.js';

export function fishCompletion(program: CommandShape): string {
  const commands = completed(program);
  const below = commands.slice(1).map(({ path }) => inFish(path));
  const lines = commands.flatMap((command) => {
    const here = `complete -c weir -n "__weir_at '${command.path}'"`;
    return [
      ...command.commands.map(({ name, description }) => `${here} -a ${name} -d ${inFish(description)}`),
      ...command.arguments.flatMap(({ takes, description }) => {
        if (takes === 'file') return [`${here} -F`];
        if (isOfNode(takes)) return [`${here} -a ${inFish(askedOf(takes))} -d ${inFish(description)}`];
        return typeof takes === 'string' ? [] : [`${here} -a ${inFish(takes.join(' '))} -d ${inFish(description)}`];
      }),
      ...command.options.map((option) => `${here} ${flagOf(option)} -d ${inFish(option.description)}`),
    ];
  });
  return `# Completes weir in fish: weir completion fish | source
function __weir_at
  set -l at weir
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
      case ${below.join(' ')}
        set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
function __weir_values
  set -l words (commandline -opc)
  set -l last (string replace -r -- '^--[^=]*=' '' (commandline -ct))
  $words[1] ${COMPLETE} $argv[1] -- $words[2..-1] "$last" 2>/dev/null </dev/null
end
complete -c weir -f
${lines.join('\n')}
`;
}

const isOfNode = (takes: Takes): takes is NodeValue => NODE_VALUES.some((kind) => kind === takes);
const askedOf = (kind: NodeValue): string => `(__weir_values ${kind})`;

function flagOf({ names, takes }: OptionShape): string {
  const written = names.map((name) => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const value =
    takes === 'nothing'
      ? []
      : takes === 'file'
        ? ['-r', '-F']
        : takes === 'text'
          ? ['-x']
          : ['-x', '-a', isOfNode(takes) ? inFish(askedOf(takes)) : quoted(takes.join(' '))];
  return [...written, ...value].join(' ');
}

/**
 * Quotes a text in single quotes. Within single quotes, fish has escape sequences for a backslash and a
 * single quote.
 */
const inFish = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
