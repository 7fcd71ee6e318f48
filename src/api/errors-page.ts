import { PROBLEM_CODES, WARNING_CODES } from '#policy/problem.js';
import { ERRORS, REQUEST_PROBLEM_CODES, typeOf } from './errors.js';

const INTRODUCTION = `# Errors

Generated from the tables of the code; a test holds this page equal to them.

Every error of the management API is a problem document of RFC 9457 (\`application/problem+json\`):

| member | is |
|---|---|
| \`type\` | \`${typeOf('not_found').replace('not_found', 'CODE')}\`; the code is stable and is what a program should look at |
| \`title\`, \`status\` | the same for every error of one code |
| \`detail\` | what was wrong with this request |
| \`error\` | one plain sentence, for people |
| \`problems\` | where there is more than one thing to say: each with a JSON pointer into the body (or \`?name\` for a query parameter), a code and a sentence |
`;

/** The text of `docs/errors.md`. `dropReasons` names why the datapath drops a packet, each with what it means. */
export function errorsPage(dropReasons: Readonly<Record<string, string>>): string {
  const errors = Object.entries(ERRORS).map(([code, { status, title, when, remedy }]) => [
    `\`${code}\``,
    String(status),
    title,
    when,
    remedy,
  ]);
  return [
    INTRODUCTION,
    section('Error codes', '', ['code', 'status', 'title', 'when', 'what to do'], errors),
    section(
      'Problem codes',
      'What can be wrong with a request, in `problems`.',
      ['code', 'means'],
      lines({ ...PROBLEM_CODES, ...REQUEST_PROBLEM_CODES }),
    ),
    section(
      'Warning codes',
      'What is valid and probably not meant, in `warnings`. A warning never blocks a write. Answers without a place for them (`PUT /api/v1/policy`, 204) list the codes in the header `Weir-Warnings`.',
      ['code', 'means'],
      lines(WARNING_CODES),
    ),
    section(
      'Drop reasons',
      'Why the datapath dropped a packet, in metrics and `GET /api/v1/stats`.',
      ['reason', 'means'],
      lines(dropReasons),
    ),
  ].join('\n');
}

const lines = (table: Readonly<Record<string, string>>) =>
  Object.entries(table).map(([code, means]) => [`\`${code}\``, means]);

function section(
  title: string,
  text: string,
  columns: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const row = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = `|${columns.map(() => '---').join('|')}|`;
  return [`## ${title}`, '', ...(text === '' ? [] : [text, '']), row(columns), rule, ...rows.map(row), ''].join('\n');
}
