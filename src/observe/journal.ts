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
 * Returns whether the journal of systemd reads the descriptor. JOURNAL_STREAM alone does not tell it, because
 * a child process whose output is redirected inherits this variable: see systemd.exec(5).
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
 * begins with its priority, such as `<4>`, see sd-daemon(3): the journal makes an entry of each line.
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
  // The journal ends a line at a NUL byte too, and shows control characters to terminals.
  const lines = text.replace(/(?!\n)\p{Cc}/gu, '\ufffd').split('\n');
  return `${lines.map((each) => `<${priority}>${each}`).join('\n')}\n`;
}

type Record = Readonly<{ [name: string]: unknown }>;

/** The removal of a secret can cut the end of a line, which is then no JSON. */
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
