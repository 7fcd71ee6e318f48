/** Sets the exit code of a successful command if it is not 0. */
export type End = (code: number) => void;

/** All exit codes with their meaning. */
export const EXIT_CODES = {
  0: 'done',
  1: 'not done, or not answered',
  2: 'wrongly called',
  3:
    'the answer is no: `weir policy diff` found differences, `weir status` found the node not ready, or ' +
    '`weir dataplane status` found an interface that is not policed',
} as const;
