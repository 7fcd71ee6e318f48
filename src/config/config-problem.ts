import type { ConfigFileProblem, ConfigProblemCode } from '#contracts/config/config-problem-codes.js';

export type ConfigProblem = {
  readonly code: ConfigProblemCode;
  /**
   * The dotted configuration key, such as `api.tls.cert`. Empty if the problem concerns the whole
   * configuration file.
   */
  readonly key: string;
  /**
   * The place where the value was set: file, line and column such as `weir.yaml:3:11`, or the name of an
   * environment variable.
   */
  readonly where: string;
  readonly message: string;
};

/**
 * Thrown for an invalid configuration. The error contains all problems. `isInText`: whether the text of the
 * configuration causes a problem, so that each later start with this text fails too. Otherwise only a
 * variable, another file or a mount is missing, which can appear without a change of the configuration.
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly code = 'invalid_config';
  constructor(
    readonly problems: readonly ConfigProblem[],
    readonly isInText: boolean,
    options?: ErrorOptions,
  ) {
    super(problems.map(sentence).join('\n'), options);
  }
}

function sentence({ where, key, message }: ConfigProblem): string {
  return [where, key, message].filter((part) => part !== '').join(': ');
}

/** Returns the problem with its JSON pointer, and with its place in the message. */
export function withPointer({ code, key, where, message }: ConfigProblem): ConfigFileProblem {
  const pointer = key === '' ? '' : `/${key.replaceAll('.', '/')}`;
  return { pointer, code, message: where === '' ? message : `${where}: ${message}` };
}
