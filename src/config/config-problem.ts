type ConfigProblemCode =
  | 'unreadable' // the file cannot be read
  | 'syntax' // not YAML
  | 'unknown_key'
  | 'missing_key'
  | 'invalid_value'
  | 'unset_variable' // `${NAME}` of a variable that is not set
  | 'unsupported' // a value that this build does not support
  | 'insecure_bind' // a listener beyond loopback without TLS (D37)
  | 'file_missing'; // a configured file does not exist or is not readable

export type ConfigProblem = {
  readonly code: ConfigProblemCode;
  /** Dotted, as in `api.tls.cert`; empty for the whole document. */
  readonly key: string;
  /** The place of the value: `weir.yaml:3:11`, or the name of the environment variable. */
  readonly where: string;
  readonly message: string;
};

/** The configuration is invalid. The error has all problems. */
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
