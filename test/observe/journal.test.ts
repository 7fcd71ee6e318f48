import { closeSync, fstatSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { describe, expect, onTestFinished, test } from 'vitest';
import { isJournal, journalText } from '#observe/log/journal.js';
import { redacted } from '#observe/log/redaction.js';
import { temporaryFolder } from '#test/store/temporary-folder.js';

/** Returns the text of what `write` logs through the logger of a node. */
function textOf(write: (log: pino.Logger) => void): string {
  let text = '';
  const stream = {
    write: (line: string) => {
      text += journalText(line);
    },
  };
  write(pino({ level: 'trace', base: { node: 'gw' }, hooks: { streamWrite: redacted } }, stream));
  return text;
}

describe('the log for the journal', () => {
  test('a log line for the journal has the syslog priority of its level', () => {
    const levels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
    const text = textOf((log) => {
      for (const level of levels) log[level]('said');
    });
    expect(text).toBe('<7>said\n<7>said\n<6>said\n<4>said\n<3>said\n<2>said\n');
  });

  test('a log line for the journal has the message before the fields, and quotes around values that are not one word', () => {
    const fields = {
      generation: 3,
      policy: null,
      by: 'ada',
      result: 'not applied',
      applied: ['/log/level'],
      a: 'b="c"',
    };
    expect(textOf((log) => log.info(fields, 'policy in force'))).toBe(
      '<6>policy in force generation=3 policy=null by=ada result="not applied" applied=["/log/level"] a="b=\\"c\\""\n',
    );
    expect(textOf((log) => log.info({ generation: 3 }))).toBe('<6>generation=3\n');
  });

  test('a log line for the journal has the stack of an error in further lines of the same priority', () => {
    const err = Object.assign(new Error('open the store: permission denied'), { code: 'store_unavailable' });
    err.stack = `Error: ${err.message}\n    at openStore (store.ts:1:2)\n    at run (node.ts:3:4)`;
    expect(textOf((log) => log.error({ err }, 'the node ends'))).toBe(
      '<3>the node ends err="open the store: permission denied" err_fields={"code":"store_unavailable"}\n' +
        '<3>    at openStore (store.ts:1:2)\n<3>    at run (node.ts:3:4)\n',
    );
  });

  test('a log message with several lines has the same journal priority in each line', () => {
    expect(textOf((log) => log.info({ name: 'a\n<0>b' }, 'first\n<0>second'))).toBe(
      '<6>first\n<6><0>second name="a\\n<0>b"\n',
    );
  });

  test('a log line for the journal has no control characters, which would end the line or act on a terminal', () => {
    expect(textOf((log) => log.info({ name: 'a\0<0>b' }, 'first\0<0>second\x1b[31m\r<0>'))).toBe(
      '<6>first\ufffd<0>second\ufffd[31m\ufffd<0> name="a\\u0000<0>b"\n',
    );
  });

  test('a log line for the journal that is no valid JSON after the removal of a secret is written as it is', () => {
    const text = textOf((log) => log.warn('-----BEGIN PRIVATE KEY-----\nMIGH'));
    expect(text).toMatch(/^<4>\{"level":40,.*"msg":"\[private key\]\n$/);
  });
});

describe('isJournal', () => {
  const open = (): number => {
    const descriptor = openSync(join(temporaryFolder(), 'out'), 'w');
    onTestFinished(() => closeSync(descriptor));
    return descriptor;
  };
  const streamOf = (descriptor: number): string => {
    const { dev, ino } = fstatSync(descriptor, { bigint: true });
    return `${dev}:${ino}`;
  };

  test('`isJournal` returns true only if JOURNAL_STREAM names device and inode of the descriptor', () => {
    const descriptor = open();
    expect(isJournal(descriptor, { JOURNAL_STREAM: streamOf(descriptor) })).toBe(true);
    expect(isJournal(open(), { JOURNAL_STREAM: streamOf(descriptor) })).toBe(false);
    expect(isJournal(descriptor, { JOURNAL_STREAM: '' })).toBe(false);
    expect(isJournal(descriptor, {})).toBe(false);
  });

  test('`isJournal` returns false for a closed descriptor', () => {
    expect(isJournal(1_000_000, { JOURNAL_STREAM: '1:2' })).toBe(false);
  });
});
