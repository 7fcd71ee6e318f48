/** Sets the exit code of a command that ends without an error. Without this call, the exit code is 0. */
export type End = (code: number) => void;

/** Maps each exit code to its meaning, for help texts and docs/cli.md. */
export const EXIT_CODES = {
  0: 'done',
  1: 'not done, or not answered',
  2: 'wrongly called: a command, an argument or a flag is missing, unknown, or has a value that is not valid',
  3:
    'the result is negative: `weir policy diff` found differences, the node of `weir status` is not ready, ' +
    '`weir dataplane status` found an interface that is not policed, or `weir dataplane check` a machine that cannot enforce the configuration',
  78: '`weir run`: the text of the configuration is not valid, and each start with it fails',
} as const;
