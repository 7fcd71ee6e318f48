import type { Address, Grants } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';

/** Returns the numbers of the hostname patterns in a program for which the address has a grant. */
export function grantedNames(program: Program, address: Address, grants: Grants): ReadonlySet<number> {
  const granted = new Set<number>();
  for (const [index, pattern] of program.names.entries()) {
    if (grants.has(pattern, address)) granted.add(index);
  }
  return granted;
}
