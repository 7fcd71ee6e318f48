import { ERRORS } from '#api/errors/error-table.js';
import { PARAMETER_CODES, typeOf } from '#api/errors/errors.js';
import { CONFIG_PROBLEM_CODES } from '#contracts/config/config-problem-codes.js';
import { PROBLEM_CODES, WARNING_CODES } from '#contracts/policy/policy-problem.js';

const INTRODUCTION = `# Errors

Generated from the tables in the source; a test compares this page with the tables.

Every error of the management API is a problem document of RFC 9457 (\`application/problem+json\`):

- \`type\`: \`${typeOf('not_found').replace('not_found', 'CODE')}\`. The code is stable, and programs should test it.
- \`title\`, \`status\`: the same for every error of one code; the title is the code in words.
- \`detail\`: what was wrong with this request. \`error\`: one plain sentence, for people.
- \`problems\`, if there is more than one: each with a JSON pointer into the body (or \`?name\` of a parameter), a code and a sentence.

Only \`outcome_unknown\`, \`reload_failed\` and \`internal\` can have changed something, and \`store_unavailable\` a revocation of a token.
`;

/** The part of a text that is removed, because the introduction of the page states it for all errors. */
const UNCHANGED = /; nothing was (?:changed|stored)(?=[.,])/;

/**
 * Returns the text of `docs/errors.md`. `dropReasons` maps the name of each drop reason of the datapath to
 * its meaning.
 */
export function errorsPage(dropReasons: Readonly<Record<string, string>>): string {
  const errors = Object.entries(ERRORS).map(
    ([code, { status, when, remedy }]) => `- \`${code}\` (${status}): ${when.replace(UNCHANGED, '')} ${remedy}`,
  );
  return [
    INTRODUCTION,
    ...['## Error codes', '', ...errors, ''],
    section('Problem codes', 'Problems of a body, listed in `problems`.', PROBLEM_CODES),
    section('Problem codes of parameters', 'Problems of a query parameter or of the path.', PARAMETER_CODES),
    section(
      'Problem codes of the configuration',
      'Problems of the configuration file (`invalid_config`).',
      CONFIG_PROBLEM_CODES,
    ),
    section(
      'Warning codes',
      [
        'Valid values that are probably a mistake. A warning never blocks a write.',
        '',
        'Responses without a member `warnings` have the header `Weir-Warnings`: the codes of this list, separated by commas. They are those of',
        '`PUT /api/v1/policy`, `DELETE /api/v1/policies/:id` and `DELETE /api/v1/policies/:id/source-groups/:group_id`. A write with',
        '`?dry_run=true` returns the sentences too.',
      ].join('\n'),
      WARNING_CODES,
    ),
    section('Drop reasons', 'Why the datapath drops packets, in metrics and `GET /api/v1/stats`.', dropReasons),
  ].join('\n');
}

function section(title: string, text: string, meanings: Readonly<Record<string, string>>): string {
  const lines = Object.entries(meanings).map(([code, means]) => `- \`${code}\`: ${means}`);
  return [`## ${title}`, '', text, '', ...lines, ''].join('\n');
}
