// Lists two faults in comments, test names and pages: a sentence that begins with Who, Whoever, What or
// Nobody, and a comment line of more than 110 columns. Arguments are paths to which the search is limited.
import './usage.js';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import ts from 'typescript';

/**
 * Finds two faults in comments, test names and pages: a sentence that begins with Who, Whoever, What or
 * Nobody, and a comment line of more than 110 columns. `npm run language -- PATH...` limits the search to the
 * given paths.
 */
const MAX_COLUMNS = 110;
const SUBJECT = /(?:^|[.!?:;][*_]*\s+)["'*`]*(?:Who|Whoever|What|Nobody)(?:'s)?\b/;
/** Files that are not checked, because their text is generated or comes from outside the project. */
const UNCHECKED = /^(LICENSE|package-lock\.json|docs\/statecharts\/|src\/cluster\/etcd\/generated\/)/;

/** One line of text of a comment or page, or one test name. `line` is the line number in the file, from 1. */
type Prose = { readonly line: number; readonly text: string; readonly isComment: boolean };
type Finding = { readonly line: number; readonly rule: string; readonly text: string };

const TEST_FUNCTIONS = new Set(['describe', 'it', 'test']);

function proseOfTypeScript(path: string, text: string): Prose[] {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const prose: Prose[] = [];
  const seen = new Set<number>();
  const addComments = (ranges: readonly ts.CommentRange[] | undefined): void => {
    for (const { pos, end } of ranges ?? []) {
      if (seen.has(pos)) continue;
      seen.add(pos);
      prose.push(...commentLines(text.slice(pos, end), lineOf(source, pos)));
    }
  };
  const visit = (node: ts.Node): void => {
    addComments(ts.getLeadingCommentRanges(text, node.getFullStart()));
    addComments(ts.getTrailingCommentRanges(text, node.getEnd()));
    if (ts.isCallExpression(node) && TEST_FUNCTIONS.has(rootName(node.expression))) {
      const [name] = node.arguments;
      if (name !== undefined && ts.isStringLiteralLike(name))
        prose.push({ line: lineOf(source, name.getStart()), text: capitalised(name.text), isComment: false });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return prose;
}

function rootName(expression: ts.Expression): string {
  if (ts.isIdentifier(expression)) return expression.text;
  if (ts.isPropertyAccessExpression(expression) || ts.isCallExpression(expression))
    return rootName(expression.expression);
  return '';
}

const lineOf = (source: ts.SourceFile, position: number): number =>
  source.getLineAndCharacterOfPosition(position).line + 1;

const capitalised = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * Splits one comment into its lines of text, without comment marks. `first` is the number of its first line
 * in the file.
 */
function commentLines(comment: string, first: number): Prose[] {
  return comment.split('\n').map((line, index) => ({
    line: first + index,
    text: line.replace(/^\s*(?:\/\*\*?|\*\/|\*|\/\/|#)?\s?/, '').replace(/\*\/\s*$/, ''),
    isComment: true,
  }));
}

function proseOfC(text: string): Prose[] {
  return [...text.matchAll(/\/\*[\s\S]*?\*\/|\/\/.*/g)].flatMap(({ 0: comment, index }) =>
    commentLines(comment, text.slice(0, index).split('\n').length),
  );
}

function proseOfShell(text: string): Prose[] {
  return text.split('\n').flatMap((line, index) => (/^\s*#(?!!)/.test(line) ? commentLines(line, index + 1) : []));
}

function proseOfMarkdown(text: string): Prose[] {
  let isCode = false;
  return text.split('\n').flatMap((line, index) => {
    if (/^\s*```/.test(line)) isCode = !isCode;
    if (isCode) return [];
    const bare = line.replace(/^[\s>#|*-]+/, '').replace(/`[^`]*`/g, '`code`');
    return [{ line: index + 1, text: bare.replace(/\|\s*/g, '. '), isComment: false }];
  });
}

/**
 * Finds the faults in `prose`; `lines` are all lines of the file. A line that continues the sentence of the
 * previous line is searched with the prefix "…", because its first word does not begin a sentence.
 */
function findings(prose: readonly Prose[], lines: readonly string[]): Finding[] {
  const found: Finding[] = [];
  let before: Prose | undefined;
  for (const part of prose) {
    const isContinued =
      before !== undefined &&
      part.line === before.line + 1 &&
      /[\w,)`'"–-]$/.test(before.text.trim()) &&
      part.isComment;
    const text = isContinued ? `… ${part.text}` : part.text;
    if (SUBJECT.test(text)) found.push({ line: part.line, rule: 'subject', text: part.text.trim() });
    const whole = lines[part.line - 1] ?? '';
    if (part.isComment && whole.length > MAX_COLUMNS && /^\s*(?:\/\*|\*|\/\/|#)/.test(whole))
      found.push({ line: part.line, rule: `${whole.length} columns`, text: part.text.trim() });
    before = part;
  }
  return found;
}

function proseOf(path: string, text: string): Prose[] {
  if (path.endsWith('.ts')) return proseOfTypeScript(path, text);
  if (/\.[ch]$/.test(path)) return proseOfC(text);
  if (path.endsWith('.md')) return proseOfMarkdown(text);
  if (/\.(sh|ya?ml)$/.test(path)) return proseOfShell(text);
  return [];
}

const paths = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '--', ...process.argv.slice(2)], {
  encoding: 'utf8',
}).split('\n');
let count = 0;
for (const path of paths) {
  if (path === '' || UNCHECKED.test(path) || !existsSync(path)) continue;
  const text = readFileSync(path, 'utf8');
  for (const { line, rule, text: shown } of findings(proseOf(path, text), text.split('\n'))) {
    count++;
    process.stdout.write(`${path}:${line}: ${rule}: ${shown.slice(0, 100)}\n`);
  }
}
process.stdout.write(`language: ${count} found\n`);
process.exitCode = count === 0 ? 0 : 1;
