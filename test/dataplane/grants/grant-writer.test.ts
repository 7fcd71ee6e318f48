import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { describe, expect, test, vi } from 'vitest';
import { Gate } from '#dataplane/grants/gate.js';
import { HEADER, LINE, linesFor, PATTERN } from '#dataplane/grants/grant-layout.js';
import { Ledger } from '#dataplane/grants/grant-ledger.js';
import { GrantTable } from '#dataplane/grants/grant-table.js';
import { GrantWriter } from '#dataplane/grants/grant-writer.js';
import { Grants } from '#dataplane/grants/grants.js';
import { Random, seedOf } from '#test/seed.js';
import { ADDRESSES, expiryNsOf, type GuestInput, SECOND_NS, TEXTS, textOf } from './guest-input.js';

const CAPACITY = 400;
const NUMBERS = 40;
const FACTORS = Uint32Array.of(0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f);
const NOW = BigInt(SECOND_NS);
const guest = new URL('../../../dist/test/dataplane/grants/guest-worker.js', import.meta.url);

function shared() {
  const memory = {
    grants: new SharedArrayBuffer(linesFor(CAPACITY) * LINE.words * 4),
    patterns: new SharedArrayBuffer(NUMBERS * PATTERN.words * 4),
  };
  const words = { grants: new Uint32Array(memory.grants), patterns: new Uint32Array(memory.patterns) };
  const gate = new Gate();
  words.grants[HEADER.owner] = 7;
  const grants = new Grants(words, { capacity: CAPACITY, inForce: undefined, random: FACTORS, gate });
  return { memory, words, gate, grants };
}

let slot: 0 | 1 = 1;
function use(grants: Grants, texts: readonly string[]): void {
  grants.makeRoom(texts, () => {});
  grants.fill(slot, texts);
  grants.activated(slot);
  slot = slot === 0 ? 1 : 0;
}

function told(grants: Grants): string[] {
  return grants
    .learned(NOW)
    .flatMap(({ pattern, addresses }) => [...addresses].map((address) => `${pattern} ${address}`));
}

describe('another thread that writes grants', () => {
  test('grants what the owner would, and leaves to him what it cannot know', () => {
    const { words, grants } = shared();
    use(grants, ['a', 'b']);
    const writer = new GrantWriter(words, grants.access);
    const grant = (patterns: string[], addresses: number[]) =>
      writer.grant(patterns, addresses, 60 * SECOND_NS, SECOND_NS);
    expect(grant(['a', 'b'], [1, 2])).toBe(true);
    expect(told(grants).toSorted()).toEqual(['a 1', 'a 2', 'b 1', 'b 2']);
    expect(grants.addresses.entries).toBe(2);
    expect(grant(['c'], [3])).toBe(false);
    use(grants, ['b', 'c']);
    expect([grant(['a'], [4]), grant(['c'], [4])]).toEqual([false, true]);
    expect(told(grants).toSorted()).toEqual(['b 1', 'b 2', 'c 4']);
    const many = Array.from({ length: CAPACITY + 1 }, (_, at) => at + 1);
    expect(grant(['c'], many)).toBe(false);
    words.grants[HEADER.owner] = 8;
    expect(grant(['c'], [4])).toBe(false);
    words.grants[HEADER.owner] = 7;
    expect(grant(['c'], [4])).toBe(true);
    grants.close();
    expect(grant(['c'], [4])).toBe(false);
  });

  test('knows the patterns that were found in force, by their texts', () => {
    const { words, grants } = shared();
    use(grants, ['a', 'b']);
    const found = new Grants(words, { capacity: CAPACITY, inForce: slot === 0 ? 1 : 0, random: FACTORS });
    const writer = new GrantWriter(words, found.access);
    expect(writer.grant(['b'], [7], 60 * SECOND_NS, SECOND_NS)).toBe(true);
    expect(writer.grant(['c'], [7], 60 * SECOND_NS, SECOND_NS)).toBe(false);
    found.makeRoom(['a', 'b'], () => {});
    found.fill(slot, ['a', 'b']);
    expect(told(found)).toEqual(['b 7']);
  });

  test('never has a part in the same change, and grants nothing to who lost his number', async () => {
    const seed = seedOf(4_711);
    const { memory, words, gate, grants } = shared();
    const stop = new SharedArrayBuffer(4);
    use(grants, TEXTS);
    const workerData: GuestInput = { access: grants.access, ...memory, stop, seed, dies: false };
    const worker = new Worker(guest, { workerData, execArgv: [] });
    await once(worker, 'online');
    const random = new Random(seed + 1);
    const ledger = new Ledger(CAPACITY, NUMBERS, grants.access.ledger);
    const table = new GrantTable(words.grants, CAPACITY, ledger);
    let changes = 0;
    for (const until = performance.now() + 3_000; performance.now() < until; ) {
      const addresses = Array.from({ length: 3 }, () => random.between(1, ADDRESSES));
      const pattern = TEXTS[random.below(TEXTS.length)] ?? '';
      const expiresAtNs = BigInt(expiryNsOf(pattern, random.between(1, 20)));
      if (random.chance(0.5)) grants.add([{ pattern, addresses, expiresAtNs }], NOW);
      else grants.remove([{ pattern, addresses }]);
      if (random.chance(0.01)) {
        use(
          grants,
          TEXTS.filter(() => random.chance(0.6)),
        );
        changes++;
        grants.sweep(NOW * BigInt(random.between(1, 60)));
        const lost = gate.hold(() => [...table.entries()].filter((entry) => ledger.live[entry.pattern] !== 1));
        expect(lost).toEqual([]);
        const foreign = gate
          .hold(() => grants.learned(NOW))
          .flatMap(({ pattern, expiresAtNs }) => [...expiresAtNs].filter((at) => textOf(at) !== pattern));
        expect(foreign).toEqual([]);
        grants.afterGrace();
      }
    }
    Atomics.store(new Int32Array(stop), 0, 1);
    const [counts] = (await once(worker, 'message')) as [{ granted: number; refused: number }];
    const fresh = new Ledger(CAPACITY, NUMBERS);
    const found = GrantTable.recover(words.grants.slice(), CAPACITY, FACTORS, () => false, fresh);
    const held = (of: Ledger): number[] => Array.from({ length: NUMBERS }, (_, number) => of.heldBy(number));
    expect([ledger.count, held(ledger)]).toEqual([fresh.count, held(fresh)]);
    expect(grants.addresses.entries).toBe(fresh.count);
    const entries = [...table.entries()];
    for (const { address, pattern, expiry } of entries) {
      expect(found.grantsOf(address)).toContainEqual([pattern, expiry]);
    }
    expect(new Set(entries.map(({ address, pattern }) => `${address} ${pattern}`)).size).toBe(entries.length);
    expect([counts.granted > 1_000, counts.refused > 100, changes > 100]).toEqual([true, true, true]);
    console.log(`grants: ${JSON.stringify(counts)}, ${changes} changes of the policy, seed ${seed}`);
  });

  test('keeps nobody out when it dies in the middle', async () => {
    const { memory, gate, grants } = shared();
    const stop = new SharedArrayBuffer(4);
    use(grants, ['a']);
    const worker = new Worker(guest, {
      workerData: { access: grants.access, ...memory, stop, seed: 1, dies: true } satisfies GuestInput,
      execArgv: [],
    });
    await once(worker, 'exit');
    expect(new Int32Array(stop)[0]).toBe(1);
    expect(gate.visit(() => 'in')).toBeUndefined();
    gate.guestEnded();
    expect(grants.add([{ pattern: 'a', addresses: [1], expiresAtNs: 9n * NOW }], NOW)).toBe(0);
    expect(told(grants)).toEqual(['a 1']);
  });

  test('that died before it counted what it granted leaves room for all the same', () => {
    const { words, grants } = shared();
    use(grants, ['a']);
    const writer = new GrantWriter(words, grants.access);
    expect(writer.grant(['a'], [1, 2], 60 * SECOND_NS, SECOND_NS)).toBe(true);
    new Ledger(CAPACITY, NUMBERS, grants.access.ledger).removeAddress();
    grants.remove([{ pattern: 'a', addresses: [1, 2] }]);
    expect(grants.addresses.entries).toBe(0);
    expect(writer.grant(['a'], [3], 60 * SECOND_NS, SECOND_NS)).toBe(true);
  });

  test('lets the owner in between the parts of what is much', () => {
    const { words, gate, grants } = shared();
    use(grants, ['a']);
    const writer = new GrantWriter(words, grants.access);
    let visits = 0;
    const visit = vi.spyOn(Gate.prototype, 'visit').mockImplementation((work) => {
      visits++;
      return gate.hold(work);
    });
    const many = Array.from({ length: 300 }, (_, at) => at + 1);
    expect(writer.grant(['a'], many, 60 * SECOND_NS, SECOND_NS)).toBe(true);
    expect(visits).toBeGreaterThan(4);
    visit.mockRestore();
  });
});

describe('the gate', () => {
  test('lets a guest in where nobody is', () => {
    const gate = new Gate();
    expect(gate.hold(() => gate.visit(() => 'in'))).toBeUndefined();
    expect(gate.visit(() => 'in')).toBe('in');
  });

  test('is open again after what went wrong in it', () => {
    const gate = new Gate();
    const wrong = (): never => {
      throw new Error('wrong');
    };
    expect(() => gate.hold(wrong)).toThrow('wrong');
    expect(() => gate.visit(wrong)).toThrow('wrong');
    expect(gate.hold(() => 'in')).toBe('in');
  });

  test('keeps the owner waiting while a guest is in, and says so where it is for too long', () => {
    const told: string[] = [];
    const gate = new Gate(undefined, ({ message }) => told.push(message));
    expect(() => gate.visit(() => gate.hold(() => 'in'))).toThrow('does not finish');
    expect(told).toEqual(['the other writer of grants does not finish']);
  });

  test('says so where the owner comes in twice', () => {
    const gate = new Gate();
    expect(() => gate.hold(() => gate.hold(() => {}))).toThrow('came again');
  });

  test('is opened for whoever ended in it, and for nobody else', () => {
    const gate = new Gate();
    gate.visit(() => {
      gate.ownerEnded();
      expect(gate.visit(() => 'in')).toBeUndefined();
      gate.guestEnded();
      expect(gate.visit(() => 'in')).toBe('in');
    });
    gate.hold(() => {
      gate.guestEnded();
      expect(gate.visit(() => 'in')).toBeUndefined();
      gate.ownerEnded();
      expect(gate.visit(() => 'in')).toBe('in');
    });
  });
});
