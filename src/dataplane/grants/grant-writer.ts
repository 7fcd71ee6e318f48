import { libbpf } from '#libc/libbpf.js';
import { check, libc } from '#libc/libc.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { digestOf } from './digest.js';
import { Gate } from './gate.js';
import type { GrantAccess } from './grant-access.js';
import { GrantTable } from './grant-table.js';
import { expiryOf, LINE, linesFor, PATTERN, PATTERNS } from './layout.js';
import { Ledger } from './ledger.js';
import { PatternIndex } from './pattern-index.js';

/** Of patterns whose digest is known; they are made anew after so many. */
const KNOWN = 262_144;

type Known = { readonly digest: Uint32Array; number: number };
type Memory = { readonly grants: Uint32Array; readonly patterns: Uint32Array };

/** Writes grants into a table that another thread keeps. What it cannot do is to be asked of that one. */
export class GrantWriter {
  readonly #table: GrantTable;
  readonly #index: PatternIndex;
  readonly #ledger: Ledger;
  readonly #gate: Gate;
  readonly #age: number;
  readonly #known = new Map<string, Known>();

  constructor(
    { grants, patterns }: Memory,
    { capacity, ledger, gate, age }: Pick<GrantAccess, 'capacity' | 'ledger' | 'gate' | 'age'>,
  ) {
    this.#ledger = new Ledger(capacity, patterns.length / PATTERN.words, ledger);
    this.#table = new GrantTable(grants, capacity, this.#ledger);
    this.#index = new PatternIndex(this.#ledger.places, patterns);
    this.#gate = new Gate(gate);
    this.#age = age;
  }

  /**
   * Grants all addresses to all patterns. True where all of it is in force; false where some of it is not: the owner is
   * writing, does not know a pattern, or has no room. Times are of the monotonic clock, in nanoseconds.
   */
  grant(patterns: readonly string[], addresses: readonly number[], expiryNs: number, nowNs: number): boolean {
    // Digests take longer than all the rest.
    const known = patterns.map((pattern) => this.#knownOf(pattern));
    const expiry = expiryOf(expiryNs);
    const now = expiryOf(nowNs);
    const isDead = (pattern: number, until: number): boolean => until <= now || this.#ledger.live[pattern] !== 1;
    const isDone = this.#gate.visit(this.#age, () =>
      known.every((each) => {
        const number = this.#numberOf(each);
        return number !== undefined && addresses.every((address) => this.#table.add(address, number, expiry, isDead));
      }),
    );
    return isDone === true;
  }

  #knownOf(pattern: string): Known {
    const found = this.#known.get(pattern);
    if (found !== undefined) return found;
    if (this.#known.size >= KNOWN) this.#known.clear();
    const known = { digest: digestOf(pattern), number: -1 };
    this.#known.set(pattern, known);
    return known;
  }

  /** Only within the gate: numbers go from one pattern to another. */
  #numberOf(known: Known): number | undefined {
    const { number, digest } = known;
    if (this.#ledger.live[number] === 1 && this.#index.isOf(number, digest)) return number;
    const found = this.#index.find(digest);
    known.number = found ?? -1;
    return found;
  }
}

export type OpenedWriter = Pick<GrantWriter, 'grant'> & { close(): void };

/** Throws where the maps are gone, or cannot be mapped. */
export function openGrantWriter(access: GrantAccess): OpenedWriter {
  const grants = mapped('grants', access.grants, linesFor(access.capacity) * LINE.words * 4);
  try {
    const patterns = mapped('patterns', access.patterns, PATTERNS * PATTERN.words * 4);
    const writer = new GrantWriter({ grants: grants.words, patterns: patterns.words }, access);
    return {
      grant: (...granted) => writer.grant(...granted),
      close: () => {
        grants.unmap();
        patterns.unmap();
      },
    };
  } catch (failure) {
    grants.unmap();
    throw failure;
  }
}

function mapped(name: string, id: number, bytes: number): MappedMemory {
  const fd = check(`open ${name}`, libbpf().bpf_map_get_fd_by_id(id));
  try {
    return new MappedMemory(name, fd, bytes);
  } finally {
    libc.close(fd);
  }
}
