import type { CommandShape, Takes } from '../command-shape.js';
import { NODE_VALUES } from './values.js';

export type Candidate = { readonly word: string; readonly about: string };

/** The words that may follow a command: its subcommands, the values of its arguments, its flags. */
export function candidatesOf({ commands, arguments: taken, options }: CommandShape): Candidate[] {
  return [
    ...commands.map(({ name, description }) => ({ word: name, about: description })),
    ...taken.flatMap(({ takes, description }) =>
      typeof takes === 'string' ? [] : takes.map((word) => ({ word, about: description })),
    ),
    ...options.flatMap(({ names, description }) => names.slice(-1).map((word) => ({ word, about: description }))),
  ];
}

/** The flags with a fixed set of values. */
export function values(commands: readonly CommandShape[]) {
  return commands.flatMap(({ path, options }) =>
    options.flatMap(({ names, takes }) =>
      typeof takes === 'string' ? [] : names.map((flag) => ({ path, flag, choices: takes })),
    ),
  );
}

/** The words before such a value, for example `weir policy apply --file`. */
export function flagsThatTake(commands: readonly CommandShape[], wanted: Takes): string[] {
  return commands.flatMap(({ path, options, arguments: taken }) => [
    ...options.flatMap(({ names, takes }) => (takes === wanted ? names.map((name) => `${path} ${name}`) : [])),
    // An argument follows its command directly.
    ...(wanted !== 'text' && taken.some(({ takes }) => takes === wanted)
      ? [`${path} ${path.split(' ').at(-1) ?? ''}`]
      : []),
  ]);
}

/** For each kind of values that the node knows, the words before it. */
export function flagsOfNode(commands: readonly CommandShape[]) {
  return NODE_VALUES.map((kind) => ({ kind, flags: flagsThatTake(commands, kind) })).filter(
    ({ flags }) => flags.length > 0,
  );
}

/** Quotes a text for all three shells. */
export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
