/** Problem codes of a configuration file with meanings; `docs/errors.md` is generated from this table. */
export const CONFIG_PROBLEM_CODES = {
  unreadable: 'The configuration file cannot be read.',
  syntax: 'The text is not valid YAML.',
  unknown_key: 'The configuration has no such key.',
  missing_key: 'A required key is missing.',
  invalid_value: 'The key cannot have this value.',
  unset_variable: 'The text names an environment variable that is not set.',
  unsupported: 'This build does not support the value.',
  insecure_bind: 'The API listens on an address other than loopback without TLS.',
  file_missing: 'A file that the configuration names does not exist or is not readable.',
} as const;
export type ConfigProblemCode = keyof typeof CONFIG_PROBLEM_CODES;

/** A problem of the configuration file. `pointer`: the JSON pointer of the key; empty for the whole file. */
export type ConfigFileProblem = {
  readonly pointer: string;
  readonly code: ConfigProblemCode;
  readonly message: string;
};
