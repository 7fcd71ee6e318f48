import { itemAt } from '#arrays/read.js';
import type { TlsMatchConfig } from '#contracts/policy/policy-document.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { matchesHostname } from '#policy/model/names/hostname.js';

/**
 * A fact about a flow that its addresses, protocol and ports do not decide.
 * - `name`: the destination has a grant for the hostname pattern (D12).
 * - `selected`: the resolved selector `key` selects the source. `unresolved`: the selector `key` is not
 *   resolved. `deny_only`: the source is deny-only, so groups with selectors apply only their deny rules.
 * - `tls`: the connection matches the TLS block. `may_match` also holds if this cannot be decided, as a deny
 *   rule requires (D19a). `hidden`: only the certificate of the server is hidden (D22a).
 */
export type Atom =
  | { readonly kind: 'name'; readonly pattern: HostnamePattern }
  | { readonly kind: 'selected' | 'unresolved'; readonly key: string }
  | { readonly kind: 'deny_only' }
  | { readonly kind: 'tls'; readonly state: TlsState; readonly block: string; readonly tls: TlsMatchConfig };
type TlsState = 'matches' | 'may_match' | 'hidden';

/** The number of the condition that is always fulfilled, and of the one that is never fulfilled. */
export const ALWAYS = 0;
export const NEVER = -1;

export type ConditionsOptions = {
  /**
   * If true, the conditions are about the one name of a DNS lookup: two hostname patterns can both hold only
   * if one name matches both. If false, they are about an address, for which DNS can have resolved several
   * names.
   */
  readonly aboutOneName?: boolean;
  /**
   * Returns whether a fact about the flow (an atom, such as a granted hostname) is true; undefined if this is
   * not known.
   */
  readonly known?: (atom: Atom) => boolean | undefined;
};

/**
 * Gives numbers to conditions. A condition is a set of facts (atoms) that must all be true. `ALWAYS` is the
 * empty set.
 */
export class Conditions {
  readonly #atoms: Atom[] = [];
  readonly #atomNumbers = new Map<string, number>();
  readonly #conditions: (readonly number[])[] = [[]];
  readonly #conditionNumbers = new Map<string, number>([['', ALWAYS]]);
  /** For each fact (atom), the facts that are true if it is true. Computed again after a fact is added. */
  readonly #implied = new Map<number, readonly number[]>();

  constructor(private readonly options: ConditionsOptions = {}) {}

  atom(atom: Atom): number {
    const key = keyOf(atom);
    const known = this.#atomNumbers.get(key);
    if (known !== undefined) return known;
    this.#implied.clear();
    this.#atomNumbers.set(key, this.#atoms.length);
    return this.#atoms.push(atom) - 1;
  }

  /**
   * Returns the number of the condition that all these facts (atoms) are true. Omits facts that are known to
   * be true.
   */
  allOf(atoms: readonly number[]): number {
    const { known: isKnown } = this.options;
    let open = atoms;
    if (isKnown !== undefined) {
      const values = atoms.map((atom) => isKnown(itemAt(this.#atoms, atom)));
      if (values.includes(false)) return NEVER;
      open = atoms.filter((_, at) => values[at] === undefined);
    }
    const sorted = [...new Set(open)].sort((left, right) => left - right);
    const key = sorted.join(' ');
    const known = this.#conditionNumbers.get(key);
    if (known !== undefined) return known;
    this.#conditionNumbers.set(key, this.#conditions.length);
    return this.#conditions.push(sorted) - 1;
  }

  /** Returns all facts (atoms); the index of a fact is its number. */
  all(): readonly Atom[] {
    return this.#atoms;
  }

  atomsOf(condition: number): readonly number[] {
    return itemAt(this.#conditions, condition);
  }

  describe(condition: number): readonly Atom[] {
    return this.atomsOf(condition).map((atom) => itemAt(this.#atoms, atom));
  }

  isTls(condition: number): boolean {
    return this.atomsOf(condition).some((atom) => itemAt(this.#atoms, atom).kind === 'tls');
  }

  /** Returns those facts (atoms) of a condition that the kernel can check: all except those about TLS. */
  kernelAtoms(condition: number): readonly number[] {
    return this.atomsOf(condition).filter((atom) => itemAt(this.#atoms, atom).kind !== 'tls');
  }

  /** Returns whether all facts (atoms) of a condition are in `holding`, the facts that are true. */
  holds(condition: number, holding: ReadonlySet<number>): boolean {
    return this.atomsOf(condition).every((atom) => holding.has(atom));
  }

  /**
   * Returns these facts (atoms) and all facts that follow from them. Returns null if no flow can have all of
   * them.
   */
  closure(atoms: readonly number[]): ReadonlySet<number> | null {
    const holding = new Set<number>();
    for (const atom of atoms) for (const implied of this.#impliedBy(atom)) holding.add(implied);
    const kinds = new Map<string, string>();
    let selected = false;
    let denyOnly = false;
    for (const number of holding) {
      const atom = itemAt(this.#atoms, number);
      selected ||= atom.kind === 'selected';
      denyOnly ||= atom.kind === 'deny_only';
      if (atom.kind === 'name' || atom.kind === 'deny_only') continue;
      const [subject, state] =
        atom.kind === 'tls'
          ? [`tls ${atom.block}`, atom.state === 'hidden' ? 'hidden' : 'known']
          : [`selector ${atom.key}`, atom.kind];
      if ((kinds.get(subject) ?? state) !== state) return null;
      kinds.set(subject, state);
    }
    if (selected && denyOnly) return null;
    return this.options.aboutOneName === true && !this.#canMatchOneName(holding) ? null : holding;
  }

  #canMatchOneName(holding: ReadonlySet<number>): boolean {
    const patterns = [...holding].flatMap((number) => {
      const atom = itemAt(this.#atoms, number);
      return atom.kind === 'name' ? [atom.pattern] : [];
    });
    return patterns.every((one, at) => patterns.slice(at + 1).every((other) => canMatchOneName(one, other)));
  }

  #impliedBy(number: number): readonly number[] {
    const known = this.#implied.get(number);
    if (known !== undefined) return known;
    const atom = itemAt(this.#atoms, number);
    const found = [...this.#atoms.keys()].filter((at) => at === number || implies(atom, itemAt(this.#atoms, at)));
    this.#implied.set(number, found);
    return found;
  }
}

function implies(atom: Atom, other: Atom): boolean {
  if (atom.kind === 'tls') {
    return (
      other.kind === 'tls' && atom.block === other.block && atom.state === 'matches' && other.state === 'may_match'
    );
  }
  return atom.kind === 'name' && other.kind === 'name' && impliesPattern(atom.pattern, other.pattern);
}

/** Returns false only if no name matches both patterns. */
export function canMatchOneName(one: HostnamePattern, other: HostnamePattern): boolean {
  if (one.text === other.text) return true;
  if (one.kind === 'exact') return matchesHostname(other, one.text);
  if (other.kind === 'exact') return matchesHostname(one, other.text);
  return one.kind !== 'suffix' || other.kind !== 'suffix' || impliesPattern(one, other) || impliesPattern(other, one);
}

/** Whether each name that matches one pattern is known to match the other pattern. */
function impliesPattern(one: HostnamePattern, other: HostnamePattern): boolean {
  if (other.kind === 'any') return true;
  if (one.kind === 'exact') return matchesHostname(other, one.text);
  return one.kind === 'suffix' && other.kind === 'suffix' && matchesHostname(other, one.labels);
}

function keyOf(atom: Atom): string {
  switch (atom.kind) {
    case 'name':
      return `name ${atom.pattern.text}`;
    case 'tls':
      return `tls ${atom.state} ${atom.block}`;
    case 'deny_only':
      return 'deny_only';
    default:
      return `${atom.kind} ${atom.key}`;
  }
}
