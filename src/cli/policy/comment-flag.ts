import type { Command } from 'commander';

export type CommentOptions = { readonly comment?: string };

export function withCommentFlag(command: Command): Command {
  return command.option('-m, --comment <text>', 'why, for `weir policy history`');
}

/** Returns the query parameter, as `name=value`, for the flag of `withCommentFlag`. */
export const commentParameter = ({ comment }: CommentOptions): readonly string[] =>
  comment === undefined ? [] : [`comment=${encodeURIComponent(comment)}`];
