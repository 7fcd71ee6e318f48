import { readFileSync } from 'node:fs';

const NUMBERS = {
  CAP_NET_BIND_SERVICE: 10,
  CAP_NET_ADMIN: 12,
  CAP_NET_RAW: 13,
  CAP_SYS_ADMIN: 21,
  CAP_PERFMON: 38,
  CAP_BPF: 39,
} as const;
export type Capability = keyof typeof NUMBERS;

/** Returns the Linux capabilities from the list that this process does not have. */
export function lacking(capabilities: readonly Capability[]): readonly Capability[] {
  const status = readFileSync('/proc/self/status', 'utf8');
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
  return capabilities.filter((capability) => (effective >> BigInt(NUMBERS[capability])) % 2n === 0n);
}
