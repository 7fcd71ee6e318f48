import { describe, expect, it } from 'vitest';
import { withoutControls } from '#observe/log/pretty-line.js';

describe('a log line for a terminal', () => {
  it.each([
    ['an escape sequence', '\u001b[2J', '\\u001b[2J'],
    ['NUL, backspace, form feed and carriage return', '\0\b\f\r', '\\u0000\\b\\f\\r'],
    ['DEL and a control character of C1', '\u007f\u009b', '\\u007f\\u009b'],
    ['separators of lines', '\u2028\u2029', '\\u2028\\u2029'],
    ['text that only looks like an escape', '\\u001b and \\\\r', '\\u001b and \\\\r'],
    ['a backslash before a control character', '\\\u001b', '\\\\u001b'],
    ['printable characters', 'é "quoted" \u{1f600}', 'é "quoted" \u{1f600}'],
  ])(
    'a log line for a terminal escapes characters that control the terminal or the line, and keeps others: %s',
    (_, text, shown) => {
      expect(JSON.parse(withoutControls(`${JSON.stringify({ msg: text })}\n`))).toEqual({ msg: shown });
    },
  );

  it('a log line for a terminal keeps the lines of a stack', () => {
    const line = `${JSON.stringify({ err: { stack: 'Error: x\n\tat f' } })}\n`;
    expect(withoutControls(line)).toBe(line);
  });
});
