type ConfigProblemCode =
  | 'unreadable' // the configuration file cannot be read
  | 'syntax' // the text is not valid YAML
  | 'unknown_key'
  | 'missing_key'
  | 'invalid_value'
  | 'unset_variable' // the text contains `${NAME}`, and the environment variable NAME is not set
  | 'unsupported' // this build does not support the value
  | 'insecure_bind' // the API listens on an address other than loopback without TLS (D37)
  | 'file_missing'; // a file that the configuration names does not exist or is not readable

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

/** Thrown for an invalid configuration. The error contains all problems. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly code = 'invalid_config';
  constructor(readonly problems: readonly ConfigProblem[]) {
    super(problems.map(sentence).join('\n'));
  }
}

function sentence({ where, key, message }: ConfigProblem): string {
  return [where, key, message].filter((part) => part !== '').join(': ');
}
