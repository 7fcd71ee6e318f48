/** Where a command writes, and what it reads from its surroundings. */
export type Terminal = {
  readonly environment: Readonly<Record<string, string | undefined>>;
  out(text: string): void;
  err(text: string): void;
};

export const processTerminal: Terminal = {
  environment: process.env,
  out: (text) => void process.stdout.write(text),
  err: (text) => void process.stderr.write(text),
};
