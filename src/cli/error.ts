/** What the command says, in one plain sentence, before it ends with 1. */
export class CliError extends Error {
  override readonly name = 'CliError';
}
