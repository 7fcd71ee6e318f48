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
 * Returns the pattern of a shell's `case` for the words that can precede a value of the kind `wanted`, for
 * example `weir policy apply --file`.
 */
export function casePattern(commands: readonly CommandShape[], wanted: Takes): string {
  const words = commands.flatMap(({ path, options, arguments: taken }) => [
    ...options.flatMap(({ names, takes }) => (takes === wanted ? names.map((name) => `${path} ${name}`) : [])),
    // The value of an argument follows the name of its command.
    ...(wanted !== 'text' && taken.some(({ takes }) => takes === wanted)
      ? [`${path} ${path.split(' ').at(-1) ?? ''}`]
      : []),
  ]);
  return words.map(quoted).join(' | ');
}

/** For each kind of value that must be requested from the node, returns its `casePattern`. */
export const flagsOfNode = (commands: readonly CommandShape[]) =>
  NODE_VALUES.map((kind) => ({ kind, pattern: casePattern(commands, kind) })).filter(({ pattern }) => pattern !== '');

/**
 * Returns the lines of a script for bash or zsh that append the subcommands in the array `words`, from the
 * index `from` to the index before `end`, to the variable `at`.
 */
export function pathLoop(commands: readonly CommandShape[], words: string, from: number, end: string): string {
  const below = commands.slice(1).map(({ path }) => quoted(path));
  return `for ((i = ${from}; i < ${end}; i++)); do
    case "$at \${${words}[i]}" in
    ${below.join(' | ')}) at="$at \${${words}[i]}" ;;
    esac
  done`;
}

/** Returns the lines of a shell's `case` that set `kind` for values that must be requested from the node. */
export const nodeValueCases = (commands: readonly CommandShape[]): string =>
  flagsOfNode(commands)
    .map(({ kind, pattern }) => `    ${pattern}) kind=${kind} ;;`)
    .join('\n');

/** Quotes a text as one word for the shells bash, zsh and fish. */
export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Returns the text as one word of a shell, with quotes only if it needs them. */
export const asWord = (text: string): string => (/^[\w/.,:@%+-]+$/.test(text) ? text : quoted(text));
