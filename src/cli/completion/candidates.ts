import type { CommandShape, Takes } from '../command-shape.js';
import { NODE_VALUES } from './values.js';

export type Candidate = { readonly word: string; readonly about: string };

/**
 * Returns the words that can follow a command: its subcommands, the fixed values of its arguments, and its
 * flags.
 */
export function candidatesOf({ commands, arguments: taken, options }: CommandShape): Candidate[] {
  return [
    ...commands.map(({ name, description }) => ({ word: name, about: description })),
    ...taken.flatMap(({ takes, description }) =>
      typeof takes === 'string' ? [] : takes.map((word) => ({ word, about: description })),
    ),
    ...options.flatMap(({ names, description }) => names.slice(-1).map((word) => ({ word, about: description }))),
  ];
}

/** Returns the flags that accept only a fixed list of values, with their commands and these values. */
export function values(commands: readonly CommandShape[]) {
  return commands.flatMap(({ path, options }) =>
    options.flatMap(({ names, takes }) =>
      typeof takes === 'string' ? [] : names.map((flag) => ({ path, flag, choices: takes })),
    ),
  );
}

/**
 * Returns the words that can precede a value of the kind `wanted`, for example `weir policy apply --file`.
 */
export function flagsThatTake(commands: readonly CommandShape[], wanted: Takes): string[] {
  return commands.flatMap(({ path, options, arguments: taken }) => [
    ...options.flatMap(({ names, takes }) => (takes === wanted ? names.map((name) => `${path} ${name}`) : [])),
    // The value of an argument follows the name of its command.
    ...(wanted !== 'text' && taken.some(({ takes }) => takes === wanted)
      ? [`${path} ${path.split(' ').at(-1) ?? ''}`]
      : []),
  ]);
}

/**
 * For each kind of value that must be requested from the node, returns the words that can precede such a
 * value.
 */
export function flagsOfNode(commands: readonly CommandShape[]) {
  return NODE_VALUES.map((kind) => ({ kind, flags: flagsThatTake(commands, kind) })).filter(
    ({ flags }) => flags.length > 0,
  );
}

/** Quotes a text as one word for the shells bash, zsh and fish. */
export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Returns the text as one word of a shell, with quotes only if it needs them. */
export const asWord = (text: string): string => (/^[\w/.,:@%+-]+$/.test(text) ? text : quoted(text));
