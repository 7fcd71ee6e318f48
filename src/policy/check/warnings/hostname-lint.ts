import { append } from '#arrays/append.js';

const NAME_CHARACTER = /[A-Za-z0-9_\-.]/;
const MAX_NAME_LENGTH = 253;
const MAX_LABEL_LENGTH = 63;

/**
 * An element of a regular expression that every match contains. It is a literal character, `dot` for a dot,
 * `any` for an unknown character, or `gap` where more characters may follow.
 */
type Piece = string;

/**
 * Returns the reason why a regular expression cannot match any hostname; undefined if it may match a
 * hostname. Expressions with alternatives or groups are not analysed, so the result may also be undefined for
 * an expression that matches no hostname.
 */
export function whyNoNameMatches(expression: string): string | undefined {
  const pieces = requiredPieces(expression);
  if (pieces === undefined) return undefined;
  const strange = pieces.find((piece) => piece.length <= 2 && !NAME_CHARACTER.test(piece));
  if (strange !== undefined)
    return /\s/.test(strange) ? 'no name has a blank' : `no name has the character ${JSON.stringify(strange)}`;
  if (pieces.some((piece, index) => piece === 'dot' && pieces[index + 1] === 'dot'))
    return 'no name has an empty label';
  const begins = expression.startsWith('^') && pieces[0] === 'dot';
  if (begins) return 'no name begins with a dot';
  if (pieces.length > MAX_NAME_LENGTH) return `a name has at most ${MAX_NAME_LENGTH} characters`;
  let label = 0;
  for (const piece of pieces) {
    label = piece === 'dot' || piece === 'any' || piece === 'gap' ? 0 : label + 1;
    if (label > MAX_LABEL_LENGTH) return `a label has at most ${MAX_LABEL_LENGTH} characters`;
  }
  return undefined;
}

/**
 * Returns the elements (characters, `dot`, `any` or `gap`) that every match of the regular expression
 * contains, in order. Returns undefined if the expression is too complex to analyse.
 */
function requiredPieces(expression: string): Piece[] | undefined {
  const text = expression.replace(/^\^/, '').replace(/\$$/, '');
  if (/[()|^$]/.test(text.replace(/\\./g, ''))) return undefined;
  const pieces: Piece[] = [];
  for (const [token] of text.matchAll(/(\\.|\[(?:\\.|[^\]\\])*\]|[^\\])([*+?]\??|\{[^}]*\}\??)?/gsu)) {
    const [, atom = '', repeat = ''] = /^(\\.|\[(?:\\.|[^\]\\])*\]|[^\\])(.*)$/su.exec(token) ?? [];
    const piece = pieceOf(atom);
    if (piece === undefined) return undefined;
    if (/^[*?{]/.test(repeat)) pieces.push('gap');
    else append(pieces, repeat === '' ? [piece] : [piece, 'gap']);
  }
  return pieces.filter((piece) => piece !== '');
}

function pieceOf(atom: string): Piece | undefined {
  if (atom === '.' || atom.startsWith('[')) return 'any';
  if (!atom.startsWith('\\')) return atom;
  if (atom === '\\.') return 'dot';
  if (atom === '\\s') return ' ';
  return /^\\[^A-Za-z0-9]$/.test(atom) ? atom.slice(1) : undefined;
}
