import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { Counter } from '#dataplane/datapath.js';
import { guardBit } from '#dataplane/program/settings.js';
import { ruleComments } from './nftables.js';

export const GUARD_TABLE = 'weir';
const TABLE = `inet ${GUARD_TABLE}`;

class GuardFailure extends Error {
  override readonly name = 'GuardFailure';
  readonly code = 'guard_failed';
}

type NftObject = {
  readonly counter?: { readonly name: string; readonly packets: number; readonly bytes: number };
};

/** The second key (D20a): what came in by a policed interface is forwarded only with the datapath's mark. */
export class Guard {
  readonly #rules: readonly string[];

  constructor(interfaces: readonly string[], markMask: number) {
    const bit = `0x${guardBit(markMask).toString(16)}`;
    // The mark first, and once: it is all that a judged packet costs here.
    const texts = [
      `meta mark & ${bit} != 0 accept`,
      ...interfaces.map((name) => `iifname "${name}" counter name "dropped" drop`),
    ];
    const comment = `weir-${createHash('sha256').update(texts.join()).digest('hex').slice(0, 12)}`;
    this.#rules = texts.map((text) => `${text} comment "${comment}"`);
  }

  /** One transaction; the counter goes on from where it stood. */
  make(): void {
    if (this.stands()) return;
    nft(['-f', '-'], 'make the guard', [
      `add table ${TABLE}`,
      `add counter ${TABLE} dropped`,
      `add chain ${TABLE} guard { type filter hook forward priority filter; policy accept; }`,
      `flush chain ${TABLE} guard`,
      ...this.#rules.map((rule) => `add rule ${TABLE} guard ${rule}`),
    ]);
  }

  /** Whether exactly these rules are in force. */
  stands(): boolean {
    const expected = this.#rules.map((rule) => /comment "(.*)"$/.exec(rule)?.[1]);
    return JSON.stringify(ruleComments(GUARD_TABLE, 'guard')) === JSON.stringify(expected);
  }

  dropped(): Counter {
    const listed = spawnSync('nft', ['-j', 'list', 'counter', 'inet', 'weir', 'dropped'], { encoding: 'utf8' });
    const counter = listed.status === 0 ? objects(listed.stdout).find((object) => object.counter)?.counter : undefined;
    return { packets: BigInt(counter?.packets ?? 0), bytes: BigInt(counter?.bytes ?? 0) };
  }

  remove(): void {
    nft(['-f', '-'], 'remove the guard', [`add table ${TABLE}`, `delete table ${TABLE}`]);
  }
}

function objects(json: string): NftObject[] {
  return (JSON.parse(json) as { nftables: NftObject[] }).nftables;
}

function nft(args: readonly string[], doing: string, lines: readonly string[]): void {
  const run = spawnSync('nft', args, { input: `${lines.join('\n')}\n`, encoding: 'utf8' });
  if (run.error !== undefined) throw new GuardFailure(`${doing}: ${run.error.message}`, { cause: run.error });
  if (run.status !== 0) throw new GuardFailure(`${doing}: ${run.stderr.trim()}`);
}
