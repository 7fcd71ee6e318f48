import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  canCopyRoutes,
  conntrackKeepMs,
  hasConntrackLookup,
  hasNetfilterPrograms,
} from '#dataplane/loader/kernel-functions.js';
import { MAX_SLOT_LINES } from '#dataplane/object/capacity.js';
import { allowAll } from '#test/kernel/policies.js';
import { back, tcp, udp } from './conversation.js';
import { TCP } from './frame.js';
import { loadForTest, PASSED } from './loaded.js';

const both = [false, true];
/**
 * The flow limit per source is on in all variants. The value 1 would switch the limit off, and the verifier
 * would remove its code.
 */
const flowShare = 0.125;
const translated = [{ address: 0x0a60_0000, length: 12 }];
const readsConntrack = hasConntrackLookup();
const keepMs = readsConntrack ? conntrackKeepMs() : null;
const translation = { translated, readsConntrack, keepMs, judges: hasNetfilterPrograms() };
const variants = both.flatMap((direct) =>
  both.flatMap((policeLocal) => [
    ...(['strict', 'loose', 'off'] as const).map((reversePath) => ({
      ...{ direct, policeLocal, reversePath },
      copiesRoutes: canCopyRoutes(),
      ...translation,
    })),
    ...both.map((handsOver) => ({
      ...{
        direct,
        policeLocal,
        handsOver,
        reversePath: 'strict' as const,
        divertDns: true,
        copiesRoutes: canCopyRoutes(),
        ...translation,
      },
      servicePlane: { address: 0x7f00_0001, port: 15_001 },
    })),
  ]),
);

// The verifier removes code that a setting disables, so it verifies another program for each combination of
// settings.
test.each(variants)('the kernel loads the BPF programs with the settings %o', (variant) => {
  const kernel = loadForTest({
    ...variant,
    flowShare,
    passIpv6: variant.direct,
    passNonIpv4: !variant.direct,
    classifyAll: false,
    traceWord: false,
  });
  // The verifier refuses a program after a million instructions. It needs about 60 ms for 100,000
  // instructions.
  expect(verifiedInstructions(kernel.object.programFd('weir_ingress'))).toBeLessThan(100_000);
  expect(verifiedInstructions(kernel.object.programFd('weir_egress'))).toBeLessThan(100_000);
  if (translation.judges) expect(verifiedInstructions(kernel.judgeFd())).toBeLessThan(100_000);
  kernel.close();
});

test.each([1, 6, 7, MAX_SLOT_LINES])(
  'the kernel loads the BPF programs with policy slots of %i cache lines',
  (slotLines) => {
    const kernel = loadForTest({ slotLines, flowShare, copiesRoutes: canCopyRoutes(), classifyAll: false });
    expect(kernel.slots.slotLines).toBe(slotLines);
    kernel.close();
  },
);

function verifiedInstructions(fd: number): number {
  return Number(/^verified_insns:\s+(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]);
}

test('a datapath with direct forwarding, police_local and a strict reverse path check passes allowed packets', () => {
  const kernel = loadForTest({ flowShare, direct: true, policeLocal: true, reversePath: 'strict' });
  kernel.activate(allowAll);
  const returned = [
    kernel.runPacket(udp).returned,
    kernel.runPacket(back(udp)).returned,
    kernel.runPacket(tcp, { tcpFlags: TCP.syn, optionBytes: 8 }).returned,
    kernel.runPacket(tcp, { tcpFlags: TCP.syn }, 0, 'out_foreign').returned,
  ];
  expect(returned).toEqual([PASSED, PASSED, PASSED, PASSED]);
  kernel.close();
});
