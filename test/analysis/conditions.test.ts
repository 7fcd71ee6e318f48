import { expect, test } from 'vitest';
import { type Atom, Conditions } from '#analysis/engine/conditions.js';
import { parseHostname } from '#policy/model/names/hostname.js';

function name(text: string): Atom {
  const parsed = parseHostname(text);
  if (!('pattern' in parsed)) throw new Error(parsed.fault);
  return { kind: 'name', pattern: parsed.pattern };
}

const tls = (state: 'matches' | 'may_match' | 'hidden', sni = 'api.example.com'): Atom => ({
  kind: 'tls',
  state,
  block: sni,
  tls: { sni },
});
const selector = (kind: 'selected' | 'unresolved', key: string): Atom => ({ kind, key });

const textOf = (atom: Atom): string =>
  atom.kind === 'name' ? atom.pattern.text : atom.kind === 'tls' ? atom.state : atom.kind;

/** Returns the texts of the atoms, also of `others`, that hold if `atoms` hold; null if none can hold. */
function closureOf(atoms: readonly Atom[], others: readonly Atom[] = [], aboutOneName = false): string[] | null {
  const conditions = new Conditions({ aboutOneName });
  const all = [...atoms, ...others];
  const numbers = all.map((atom) => conditions.atom(atom));
  const holding = conditions.closure(numbers.slice(0, atoms.length));
  if (holding === null) return null;
  return [...new Set(all.filter((_, at) => holding.has(numbers[at] ?? -1)).map(textOf))].sort();
}

test.each([
  ['*', ['*']],
  ['*.example.com', ['*', '*.example.com']],
  ['*.b.example.com', ['*', '*.b.example.com', '*.example.com']],
  ['api.example.com', ['*', '*.example.com', '^(www|api)', 'api.example.com']],
  ['^(www|api)', ['*', '^(www|api)']],
])('a grant for %s is a grant for %j', (text, implied) => {
  const patterns = ['*', '*.example.com', '*.b.example.com', 'api.example.com', '^(www|api)', 'other.org'];
  expect(closureOf([name(text)], patterns.map(name))).toEqual(implied);
});

test('a policy comparison treats a TLS block that surely matches as one that may match, but not the other way round', () => {
  expect(closureOf([tls('matches')], [tls('may_match'), tls('hidden')])).toEqual(['matches', 'may_match']);
  expect(closureOf([tls('may_match')], [tls('matches')])).toEqual(['may_match']);
});

test.each<[isPossible: boolean, atoms: Atom[]]>([
  [false, [selector('selected', 'a'), { kind: 'deny_only' }]],
  [false, [selector('selected', 'a'), selector('unresolved', 'a')]],
  [true, [selector('selected', 'a'), selector('unresolved', 'b')]],
  [true, [selector('unresolved', 'a'), { kind: 'deny_only' }]],
  [false, [tls('hidden'), tls('matches')]],
  [false, [tls('hidden'), tls('may_match')]],
  [true, [tls('hidden'), tls('matches', 'other.org')]],
  [true, [name('api.example.com'), name('other.org')]],
])('it is %s that a flow can fulfil %j', (isPossible, atoms) => {
  expect(closureOf(atoms) !== null).toBe(isPossible);
});

test.each([
  [false, 'api.example.com', 'other.org'],
  [false, '*.example.com', 'other.org'],
  [false, '*.example.com', '*.other.org'],
  [false, '^(www|api)', 'other.org'],
  [true, '*.example.com', '*.b.example.com'],
  [true, '*.b.example.com', '*.example.com'],
  [true, '*', '*.example.com'],
  [true, '^(www|api)', '*.other.org'],
])('it is %s that one name can match %s and %s', (isPossible, one, other) => {
  expect(closureOf([name(one), name(other)], [], true) !== null).toBe(isPossible);
});
