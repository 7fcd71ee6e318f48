import type { Policy } from './model.js';
import type { ProofSample } from './proof.js';
import { addClasses, classesOf } from './proof-classes.js';
import { ProofCorners } from './proof-corners.js';
import { ProofPackets } from './proof-packets.js';
import { ProofRandom } from './proof-random.js';

/** Up to so many classes all are checked, by six packets each. */
const MAX_CLASSES = 1 << 13;
/** With more rules nobody counts classes: there are more than that. */
const MAX_RULES_TO_COUNT = 1 << 12;
/** Packets beside the rules: so many, and fewer for each rule where every class is checked. */
const MAX_BESIDE = 1 << 15;
const BESIDE_EACH = 16;

/**
 * Packets to check a compiled policy with: of each equivalence class, or where there are too many, one inside of each
 * rule; and in both cases others beside the rules. The same policy gives the same sample.
 */
export function sampleOf(policy: Policy): ProofSample {
  const packets = new ProofPackets(policy);
  const random = new ProofRandom(seedOf(policy));
  const corners = new ProofCorners(packets, random);
  const rules = policy.groups.reduce((sum, group) => sum + group.rules.length, 0);
  const classes = rules > MAX_RULES_TO_COUNT ? null : classesOf(policy, MAX_CLASSES);
  if (classes === null) {
    corners.addInside();
    corners.addBeside(MAX_BESIDE);
  } else {
    addClasses(packets, classes, random);
    corners.addBeside(Math.min(MAX_BESIDE, rules * BESIDE_EACH));
  }
  return packets.sample(classes === null ? null : classes.count);
}

/** A number that differs where policies differ, mostly. */
function seedOf({ groups }: Policy): number {
  let mixed = groups.length;
  const mix = (number: number): void => {
    mixed = Math.imul(mixed ^ number, 0x01000193);
    mixed ^= mixed >>> 15;
  };
  for (const { sources, rules } of groups) {
    mix(rules.length);
    for (const { address, length } of sources) mix(address + length);
    for (const { address, length } of rules[0]?.destinations ?? []) mix(address + length);
  }
  return mixed;
}
