import type { Family } from '#contracts/policy/policy-model.js';
import { BpfObject, builtThirdPartyProgram } from '#dataplane/loader/bpf-object.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { check } from '#libc/libc.js';

/** The number for each kind of kernel hook, as in `enum other_kind` of `bpf/third_party_hooks.h`. */
export const HOOK_KIND = {
  prerouting: 1,
  forward: 2,
  postrouting: 3,
  ingress: 4,
  egress: 5,
  receiver: 6,
  no_ethernet: 7,
  rule: 8,
  xfrm: 9,
} as const;
/**
 * Offsets in bytes of the fields of `struct others`; `places` is the maximum number of hooks in its array
 * `found`.
 */
export const OTHERS = { count: 0, devices: 4, found: 8, places: 1_024 } as const;
/** Offsets in bytes of the fields of `struct other`; `size` is the size of that struct. */
export const OTHER = { kind: 0, family: 4, id: 8, function: 12, size: 64 } as const;
export const OTHERS_BYTES = OTHERS.found + OTHERS.places * OTHER.size;

type OtherKind = keyof typeof HOOK_KIND;
/** The kernel function that runs a netfilter program. */
const NETFILTER_PROGRAM = 'nf_hook_run_bpf';
/**
 * A hook that forwarded packets pass. `family`: the IP family of these packets; null: both. `id` is, by kind:
 * the index of a device, the preference of a routing rule, the number of IPsec policies, or the id of a
 * netfilter program at the forward hook; else 0. `symbol` is the kernel function of the hook.
 */
export type ThirdPartyHook = {
  readonly kind: OtherKind;
  readonly family: Family | null;
  readonly id: number;
  readonly symbol: string;
};

const FAMILIES: Readonly<Record<number, Family>> = { 4: 'ipv4', 6: 'ipv6' };

const KINDS = new Map<number, OtherKind>(
  Object.entries(HOOK_KIND).map(([kind, number]) => [number, kind as OtherKind]),
);

/**
 * Loads and runs the BPF program `weir_others`. The program lists the hooks for forwarded packets in the
 * calling thread's network namespace.
 */
export class ThirdPartyProgram {
  readonly #object = new BpfObject(builtThirdPartyProgram);
  readonly #run: TestRun;
  readonly #answer = new Uint8Array(OTHERS_BYTES);

  constructor() {
    try {
      this.#object.load();
      this.#run = new TestRun(this.#object.programFd('weir_others'), undefined, undefined, undefined);
    } catch (error) {
      this.#object.close();
      throw error;
    }
  }

  /**
   * Returns the hooks that forwarded packets pass, including those of the guard (Weir's nftables rules).
   * Throws if there are more than `OTHERS.places` hooks, or if the BPF program `weir_others` could not read
   * the routing rules or devices to the end of their list.
   */
  look(): ThirdPartyHook[] {
    const step = this.#run.run();
    if (step !== 0)
      throw new Error(`list the BPF hooks of other programs: the BPF program ended early in step ${step}`);
    check(
      'read third-party hooks',
      libbpf().bpf_map_lookup_elem(this.#object.mapFd('others'), new Uint8Array(4), this.#answer),
    );
    const view = new DataView(this.#answer.buffer);
    const count = view.getUint32(OTHERS.count, true);
    if (count > OTHERS.places)
      throw new Error(`the kernel has ${count} hooks of other programs, and Weir reads at most ${OTHERS.places}`);
    return Array.from({ length: count }, (_, index) => {
      const at = OTHERS.found + index * OTHER.size;
      const kind = KINDS.get(view.getUint32(at + OTHER.kind, true));
      if (kind === undefined)
        throw new Error('the BPF object that lists third-party hooks belongs to another build of Weir');
      const symbol = textIn(this.#answer.subarray(at + OTHER.function, at + OTHER.size));
      const hasId = kind !== 'forward' || symbol === NETFILTER_PROGRAM;
      const family = FAMILIES[view.getUint32(at + OTHER.family, true)] ?? null;
      return { kind, family, id: hasId ? view.getUint32(at + OTHER.id, true) : 0, symbol };
    });
  }

  close(): void {
    this.#object.close();
  }
}

function textIn(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
}
