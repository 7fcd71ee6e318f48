type ConfigProblemCode =
  | 'unreadable' // the file itself
  | 'syntax' // not YAML
  | 'unknown_key'
  | 'missing_key'
  | 'invalid_value'
  | 'unset_variable' // `${NAME}` of a variable that is not set
  | 'unsupported' // a value that this build does not serve
  | 'insecure_bind' // a listener beyond loopback without TLS (D37)
  | 'file_missing'; // a file that is named but not there, or not readable

export type ConfigProblem = {
  readonly code: ConfigProblemCode;
  /** Dotted, as in `api.tls.cert`; empty for the document. */
  readonly key: string;
  /** Where the value stands: `weir.yaml:3:11`, or the name of the environment variable. */
  readonly where: string;
  readonly message: string;
};

/** The configuration is wrong: every problem of it. */
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
