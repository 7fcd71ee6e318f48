import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { Counter } from '#dataplane/datapath.js';
import { guardBit } from '#dataplane/program/settings.js';
import { ruleComments } from './nftables.js';

export const GUARD_TABLE = 'weir';
export const GUARD_CHAIN = 'guard';
const TABLE = `inet ${GUARD_TABLE}`;

class GuardFailure extends Error {
  override readonly name = 'GuardFailure';
  readonly code = 'guard_failed';
}

type NftObject = {
  readonly rule?: { readonly expr?: readonly unknown[] };
  readonly counter?: { readonly name: string; readonly packets: number; readonly bytes: number };
};

/** The second key (D20a): what came in by a policed interface is forwarded only with the datapath's mark. */
export class Guard {
  readonly #interfaces: readonly string[];
  readonly #bit: number;
  /** Bits by which an earlier process marks, for as long as its programs judge. */
  #earlier: readonly number[] = [];

  constructor(interfaces: readonly string[], markMask: number) {
    this.#interfaces = interfaces;
    this.#bit = guardBit(markMask);
  }

  /** One transaction; the counter goes on from where it stood. */
  make(): void {
    if (this.stands()) return;
    nft(['-f', '-'], 'make the guard', [
      `add table ${TABLE}`,
      `add counter ${TABLE} dropped`,
      `add chain ${TABLE} guard { type filter hook forward priority filter; policy accept; }`,
      `flush chain ${TABLE} guard`,
      ...this.#rules().map((rule) => `add rule ${TABLE} guard ${rule}`),
    ]);
  }

  /** Whether exactly these rules are in force. */
  stands(): boolean {
    const expected = this.#rules().map((rule) => /comment "(.*)"$/.exec(rule)?.[1]);
    return JSON.stringify(ruleComments(GUARD_TABLE, GUARD_CHAIN)) === JSON.stringify(expected);
  }

  /** Goes on accepting what the standing guard accepts, from the next `make` on. */
  acceptEarlier(): void {
    const bits = standingRules().flatMap(({ expr }) => bitIn(expr));
    this.#earlier = [...new Set(bits)].filter((bit) => bit !== this.#bit);
  }

  /** Accepts nothing but its own mark, from the next `make` on. */
  acceptOwnOnly(): void {
    this.#earlier = [];
  }

  #rules(): string[] {
    // The mark first, and once: it is all that a judged packet costs here.
    const texts = [
      ...[this.#bit, ...this.#earlier].map((bit) => `meta mark & 0x${bit.toString(16)} != 0 accept`),
      ...this.#interfaces.map((name) => `iifname "${name}" counter name "dropped" drop`),
    ];
    const comment = `weir-${createHash('sha256').update(texts.join()).digest('hex').slice(0, 12)}`;
    return texts.map((text) => `${text} comment "${comment}"`);
  }
}

function standingRules(): NonNullable<NftObject['rule']>[] {
  const listed = spawnSync('nft', ['-j', 'list', 'chain', 'inet', 'weir', 'guard'], { encoding: 'utf8' });
  return listed.status === 0 ? objects(listed.stdout).flatMap(({ rule }) => rule ?? []) : [];
}

/** The bit of the mark that a rule accepts, or drops without. */
function bitIn(expr: readonly unknown[] = []): number[] {
  const found = /"&":\[\{"meta":\{"key":"mark"\}\},(\d+)\]/.exec(JSON.stringify(expr))?.[1];
  return found === undefined ? [] : [Number(found)];
}

export function guardDropped(): Counter {
  const listed = spawnSync('nft', ['-j', 'list', 'counter', 'inet', 'weir', 'dropped'], { encoding: 'utf8' });
  const counter = listed.status === 0 ? objects(listed.stdout).find((object) => object.counter)?.counter : undefined;
  return { packets: BigInt(counter?.packets ?? 0), bytes: BigInt(counter?.bytes ?? 0) };
}

/** Answers whether there was one. */
export function removeGuard(): boolean {
  const stood = spawnSync('nft', ['list', 'table', 'inet', 'weir']).status === 0;
  nft(['-f', '-'], 'remove the guard', [`add table ${TABLE}`, `delete table ${TABLE}`]);
  return stood;
}

function objects(json: string): NftObject[] {
  return (JSON.parse(json) as { nftables: NftObject[] }).nftables;
}

function nft(args: readonly string[], doing: string, lines: readonly string[]): void {
  const run = spawnSync('nft', args, { input: `${lines.join('\n')}\n`, encoding: 'utf8' });
  if (run.error !== undefined) throw new GuardFailure(`${doing}: ${run.error.message}`, { cause: run.error });
  if (run.status !== 0) throw new GuardFailure(`${doing}: ${run.stderr.trim()}`);
}
