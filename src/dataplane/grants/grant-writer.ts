import type { PassedObject } from '#contracts/bpf-object-handle.js';
import type { GrantAccess } from '#contracts/grant-access.js';
import { libc } from '#libc/libc.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { takeObject } from '#libc/object-handle.js';
import { digestOf } from './digest.js';
import { Gate } from './gate.js';
import { expiryOf, LINE, linesFor, PATTERN, PATTERNS } from './grant-layout.js';
import { Ledger } from './grant-ledger.js';
import type { IsDead } from './grant-sets.js';
import { GrantTable } from './grant-table.js';
import { PatternIndex } from './pattern-index.js';

/** Patterns whose number is known; they are looked for anew after so many. */
const KNOWN = 262_144;
/** An address in a set of all the patterns that it may have takes some microseconds. */
const GRANTS_OF_A_VISIT = 64;

type Known = { readonly number: number; readonly incarnation: number };
const UNKNOWN: Known = { number: -1, incarnation: 0 };
type Memory = { readonly grants: Uint32Array; readonly patterns: Uint32Array };

/** Writes grants into a table that another thread keeps. What it cannot do is to be asked of that one. */
export class GrantWriter {
  readonly #table: GrantTable;
  readonly #index: PatternIndex;
  readonly #ledger: Ledger;
  readonly #gate: Gate;
  readonly #owner: number;
  readonly #known = new Map<string, Known>();

  constructor(
    { grants, patterns }: Memory,
    { capacity, ledger, gate, owner }: Pick<GrantAccess, 'capacity' | 'ledger' | 'gate' | 'owner'>,
  ) {
    this.#ledger = new Ledger(capacity, patterns.length / PATTERN.words, ledger);
    this.#table = new GrantTable(grants, capacity, this.#ledger);
    this.#index = new PatternIndex(this.#ledger.places, patterns);
    this.#gate = new Gate(gate);
    this.#owner = owner;
  }

  /**
   * Grants all addresses to all patterns. True where all of it is in force; false where some of it is not: the owner is
   * writing, does not know a pattern, or has no room. Times are of the monotonic clock, in nanoseconds.
   */
  grant(patterns: readonly string[], addresses: readonly number[], expiryNs: number, nowNs: number): boolean {
    const now = expiryOf(nowNs);
    const expiry = expiryOf(expiryNs);
    const isDead: IsDead = (pattern, until) => until <= now || this.#ledger.live[pattern] !== 1;
    return patterns.every((pattern) => {
      const known = this.#knownOf(pattern);
      for (let from = 0; from < addresses.length; from += GRANTS_OF_A_VISIT) {
        const part =
          addresses.length <= GRANTS_OF_A_VISIT ? addresses : addresses.slice(from, from + GRANTS_OF_A_VISIT);
        if (this.#gate.visit(() => this.#add(known, part, expiry, isDead)) !== true) return false;
      }
      return true;
    });
  }

  /** Only within the gate, as `#find`: numbers go from one pattern to another. */
  #add(known: Known, addresses: readonly number[], expiry: number, isDead: IsDead): boolean {
    if (this.#table.owner !== this.#owner || !this.#isCurrent(known)) return false;
    return addresses.every((address) => this.#table.add(address, known.number, expiry, isDead));
  }

  #knownOf(pattern: string): Known {
    const known = this.#known.get(pattern);
    if (known !== undefined && this.#isCurrent(known)) return known;
    // A digest takes longer than all the rest, so that it is not made in the gate.
    const digest = digestOf(pattern);
    const found = this.#gate.visit(() => this.#find(digest)) ?? UNKNOWN;
    if (this.#known.size >= KNOWN) this.#known.clear();
    if (found !== UNKNOWN) this.#known.set(pattern, found);
    return found;
  }

  #find(digest: Uint32Array): Known {
    const number = this.#index.find(digest);
    return number === undefined ? UNKNOWN : { number, incarnation: this.#ledger.incarnations[number] ?? 0 };
  }

  #isCurrent({ number, incarnation }: Known): boolean {
    return this.#ledger.live[number] === 1 && this.#ledger.incarnations[number] === incarnation;
  }
}

export type OpenedWriter = Pick<GrantWriter, 'grant'> & { close(): void };

/** Throws where the maps are gone, or cannot be mapped. */
export function openGrantWriter(access: GrantAccess): OpenedWriter {
  const all: MappedMemory[] = [];
  const close = (): void => {
    for (const each of all) each.unmap();
  };
  const map = (name: string, passed: PassedObject, bytes: number): Uint32Array => {
    const memory = mapped(name, passed, bytes);
    all.push(memory);
    return memory.words;
  };
  try {
    const grants = map('grants', access.grants, linesFor(access.capacity) * LINE.words * 4);
    const patterns = map('patterns', access.patterns, PATTERNS * PATTERN.words * 4);
    const writer = new GrantWriter({ grants, patterns }, access);
    return { grant: (...granted) => writer.grant(...granted), close };
  } catch (failure) {
    close();
    throw failure;
  }
}

function mapped(name: string, passed: PassedObject, bytes: number): MappedMemory {
  const fd = takeObject(`take ${name} over`, passed);
  try {
    return new MappedMemory(name, fd, bytes);
  } finally {
    libc.close(fd);
  }
}
