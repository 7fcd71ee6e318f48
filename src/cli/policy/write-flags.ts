import type { Command } from 'commander';
import { type CommentOptions, commentParameter, withCommentFlag } from './comment-flag.js';

/** The flags of all commands that can change the policy in force. */
export type WriteFlags = CommentOptions & { readonly override?: readonly string[] };

export function withWriteFlags(command: Command): Command {
  return withCommentFlag(command).option(
    '--override <assertion-id>',
    'let the write break this assertion, which the history records; several are separated by commas, or repeat the flag',
    (ids: string, before: readonly string[] = []) => [...before, ...ids.split(',')],
  );
}

/** Returns the query parameters, as `name=value`, for the flags of `withWriteFlags`. */
export const writeParameters = (flags: WriteFlags): readonly string[] => [
  ...commentParameter(flags),
  ...(flags.override ?? []).map((id) => `override=${encodeURIComponent(id)}`),
];
