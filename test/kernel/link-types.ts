import { spawnSync } from 'node:child_process';

/** Returns whether `ip link add` succeeds with these arguments, in a network namespace of its own. */
const makes = (...links: readonly string[]): boolean =>
  spawnSync('unshare', ['--net', 'sh', '-ec', links.map((link) => `ip link add ${link}`).join('; ')]).status === 0;

/** Whether the kernel has VLAN interfaces (module 8021q), and VRF interfaces (module vrf). */
export const HAS_VLANS = makes('a0 type veth peer name a1', 'link a0 name a0.1 type vlan id 1');
export const HAS_VRFS = makes('v0 type vrf table 9');
