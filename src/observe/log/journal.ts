import { fstatSync } from 'node:fs';
import { append } from '#arrays/append.js';

/** The priorities of syslog(3) for the levels of Pino, the highest level first. */
const PRIORITIES: readonly (readonly [level: number, priority: number])[] = [
  [60, 2],
  [50, 3],
  [40, 4],
  [30, 6],
];
const DEBUG = 7;

/**
 * Returns whether output to the descriptor goes to the journal of systemd. The variable JOURNAL_STREAM must
 * match the descriptor, because a child process with redirected output inherits the variable: see
 * systemd.exec(5).
 */
export function isJournal(descriptor: number, { JOURNAL_STREAM: stream }: NodeJS.ProcessEnv): boolean {
  if (stream === undefined) return false;
  try {
    const { dev, ino } = fstatSync(descriptor, { bigint: true });
    return stream === `${dev}:${ino}`;
  } catch {
    return false;
  }
}

/**
 * Converts a line of Pino to text for the journal: the message, then the fields as `name=value`, then the
 * stack of an error. Omits the time and the node, because the journal has its own time and host. Each line
 * begins with its priority, such as `<4>`, because the journal makes an entry of each line, see sd-daemon(3).
 */
export function journalText(line: string): string {
  const { level, time: _, node: __, msg = '', ...fields } = recordOf(line);
  const priority = PRIORITIES.find(([from]) => Number(level) >= from)?.[1] ?? DEBUG;
  const stacks: string[] = [];
  const words = Object.entries(fields).map(([name, value]) => {
    if (!isError(value)) return `${name}=${wordOf(value)}`;
    const { type: ___, message, stack, ...more } = value;
    append(
      stacks,
      stack.split('\n').filter((frame) => /^\s+at /.test(frame)),
    );
    const rest = Object.keys(more).length === 0 ? '' : ` ${name}_fields=${wordOf(more)}`;
    return `${name}=${wordOf(message)}${rest}`;
  });
  const text = [[String(msg), ...words].filter((word) => word !== '').join(' '), ...stacks].join('\n');
  // Replace control characters: the journal also ends a line at a NUL byte, and passes control characters to
  // terminals.
  const lines = text.replace(/(?!\n)\p{Cc}/gu, '\ufffd').split('\n');
  return `${lines.map((each) => `<${priority}>${each}`).join('\n')}\n`;
}

type Record = Readonly<{ [name: string]: unknown }>;

/** A line may not be valid JSON, because the removal of a secret can truncate the line. */
function recordOf(line: string): Record {
  try {
    return JSON.parse(line) as Record;
  } catch {
    return { level: /"level":(\d+)/.exec(line)?.[1], msg: line.trimEnd() };
  }
}

type SerialisedError = { readonly type: unknown; readonly message: string; readonly stack: string };

const isError = (value: unknown): value is SerialisedError =>
  typeof value === 'object' &&
  value !== null &&
  'type' in value &&
  'message' in value &&
  'stack' in value &&
  typeof value.stack === 'string';

const wordOf = (value: unknown): string =>
  typeof value === 'string' && /^[^\s"=\p{Cc}]+$/u.test(value) ? value : JSON.stringify(value);
