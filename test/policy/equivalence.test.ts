import { describe, expect, test } from 'vitest';
import { classify, grantedNames } from '#policy/classify.js';
import { compile } from '#policy/compile.js';
import { evaluate } from '#policy/evaluate.js';
import type { Grants, Packet, Policy } from '#policy/model.js';
import { noGrants } from '#policy/model.js';
import { word } from '#policy/program.js';
import {
  type GenerateOptions,
  generateGrants,
  generatePolicy,
  packetGenerator,
  shrink,
} from '#test/policy/generate.js';
import { Random, seedOf } from '#test/seed.js';

const PACKETS = 1_000;

function wanted(policy: Policy, packet: Packet, grants: Grants): number {
  const { rank, verdict, audited } = evaluate(policy, packet, grants);
  return word(rank, verdict, audited);
}

function found(policy: Policy, packet: Packet, grants: Grants): number {
  const program = compile(policy);
  return classify(program, packet, grantedNames(program, packet.destination, grants));
}

function checkPolicy(seed: number, options: GenerateOptions): void {
  const random = new Random(seed);
  const policy = generatePolicy(random, options);
  const program = compile(policy);
  const grants = random.chance(0.3) ? noGrants : generateGrants(seed);
  const packet = packetGenerator(random, policy);
  for (let count = 0; count < PACKETS; count++) {
    const tried = packet();
    const got = classify(program, tried, grantedNames(program, tried.destination, grants));
    if (got === wanted(policy, tried, grants)) continue;
    const smallest = shrink(policy, tried, (less, same) => found(less, same, grants) !== wanted(less, same, grants));
    const { policy: less, packet: same } = smallest;
    const report = JSON.stringify({ seed, ...smallest }, undefined, 1);
    expect.fail(`compiled ${found(less, same, grants)}, evaluated ${wanted(less, same, grants)}: ${report}`);
  }
}

describe('the compiled policy decides as the reference does', () => {
  const seed = seedOf(20_260_101);

  test.each([
    ['small policies', 150, { groups: 3, rules: 3 }],
    ['policies of many groups', 100, { groups: 20, rules: 3 }],
    ['policies of long groups', 50, { groups: 3, rules: 40 }],
    ['policies without TLS and hostnames', 50, { groups: 6, rules: 8, tls: false, hostnames: false }],
  ])('%s', (name, policies, options) => {
    for (let number = 0; number < policies; number++) checkPolicy(seed + number * 7919, options);
    console.log(`${name}: ${policies} policies × ${PACKETS} packets, seed ${seed}`);
  });
});
