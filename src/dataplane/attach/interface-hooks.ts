import type { Attachment } from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import { matchesInterface } from '#contracts/datapath-options.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import {
  attachClsact,
  attachTcx,
  clsactProgram,
  detachClsact,
  isTcxUnsupported,
  tcxProgram,
} from './attach-program.js';
import { type Interface, isEthernet, listInterfaces } from './interfaces.js';
import type { Pins } from './pins.js';

class UnsupportedInterface extends Error {
  override readonly name = 'UnsupportedInterface';
  readonly code = 'unsupported_interface';
  constructor(readonly interfaceName: string) {
    super(notEthernet(interfaceName));
  }
}

export const notEthernet = (name: string): string =>
  `${name} is not an Ethernet interface; the datapath supports only Ethernet`;

/** File descriptors of the BPF programs for the ingress hook and for the egress hook. */
export type HookPrograms = Readonly<Record<Direction, number>>;

/**
 * The hooks of the policed interfaces. Each method reads the state of the hooks from the kernel, because
 * other processes can change that state.
 */
export class Hooks {
  #tcxSupported: boolean;
  #patterns: readonly string[];

  constructor(
    readonly options: Pick<DatapathOptions, 'interfaces' | 'forceClsact' | 'policeLocal' | 'servicePlane'>,
    readonly pins: Pins,
  ) {
    this.#tcxSupported = options.forceClsact !== true;
    this.#patterns = options.interfaces;
  }

  /** Replaces the names of the policed interfaces. The next calls of `attach` and `prune` use them. */
  police(interfaces: readonly string[]): void {
    this.#patterns = interfaces;
  }

  /** The configured names of the policed interfaces. */
  get names(): readonly string[] {
    return this.#patterns;
  }

  interfaces(): { readonly all: readonly Interface[]; readonly policed: readonly Interface[] } {
    const all = listInterfaces();
    return { all, policed: all.filter(({ name }) => this.#isPoliced(name)) };
  }

  /** Returns false if the interface was removed, renamed or moved to another network namespace. */
  isThere({ name, ifindex }: Interface): boolean {
    return listInterfaces().some((found) => found.name === name && found.ifindex === ifindex);
  }

  /**
   * Returns the directions in which policed interfaces need a hook. Ingress always needs a hook. Egress needs
   * a hook in two cases:
   * - The ingress hook may not have classified a packet, because the packet comes from the node, or from an
   *   interface that is not policed.
   * - The service plane must suppress packets that the kernel sends from the sockets of the service plane.
   */
  directions(): readonly Direction[] {
    const hasUnpoliced = listInterfaces().some(({ name }) => name !== 'lo' && !this.#isPoliced(name));
    const { policeLocal, servicePlane } = this.options;
    return policeLocal || hasUnpoliced || servicePlane != null ? ['ingress', 'egress'] : ['ingress'];
  }

  /**
   * Returns the id of Weir's BPF program on a hook, and whether TCX or clsact attaches it; undefined if the
   * hook has no BPF program of Weir.
   */
  attachedProgram(
    { ifindex }: Interface,
    direction: Direction,
  ): { readonly programId: number; readonly by: Attachment['by'] } | undefined {
    const tcx = tcxProgram(ifindex, this.pins.link(ifindex, direction));
    if (tcx !== undefined) return { programId: tcx, by: 'tcx' };
    const clsact = clsactProgram(ifindex, direction);
    return clsact === undefined ? undefined : { programId: clsact, by: 'clsact' };
  }

  /**
   * Returns the ids of the BPF programs that Weir has attached to any interface: by TCX links with pins of
   * this node, or by clsact filters.
   */
  attachedPrograms(): number[] {
    return listInterfaces().flatMap((found) =>
      DIRECTIONS.flatMap((direction) => this.attachedProgram(found, direction)?.programId ?? []),
    );
  }

  attach(policed: Interface, programs: HookPrograms): Attachment {
    const { name, ifindex } = policed;
    if (!isEthernet(name)) throw new UnsupportedInterface(name);
    const wanted = this.directions();
    // Attach egress before ingress. If ingress let in a new flow first, replies of that flow could leave
    // before an egress hook exists to classify them.
    const by = this.#attach(ifindex, 'egress', wanted.includes('egress') ? programs.egress : undefined);
    return { interface: name, ifindex, by: this.#attach(ifindex, 'ingress', programs.ingress) ?? by ?? 'tcx' };
  }

  /**
   * Detaches Weir's BPF programs from interfaces that are not policed according to the configuration, and
   * removes the pins of links to interfaces that no longer exist.
   */
  prune(): void {
    const { all, policed } = this.interfaces();
    const kept = new Set(policed.map(({ ifindex }) => ifindex));
    for (const ifindex of this.pins.linkedInterfaces()) {
      if (kept.has(ifindex)) continue;
      for (const direction of DIRECTIONS) this.pins.remove(this.pins.link(ifindex, direction));
    }
    for (const { ifindex } of all) {
      if (kept.has(ifindex)) continue;
      for (const direction of DIRECTIONS) detachClsact(ifindex, direction);
    }
  }

  #isPoliced(name: string): boolean {
    return matchesInterface(this.#patterns, name);
  }

  /**
   * Attaches a BPF program to a hook, or detaches Weir's program from the hook if `programFd` is undefined.
   */
  #attach(ifindex: number, direction: Direction, programFd: number | undefined): Attachment['by'] | undefined {
    const pinPath = this.pins.link(ifindex, direction);
    if (programFd === undefined) {
      this.pins.remove(pinPath);
      detachClsact(ifindex, direction);
      return undefined;
    }
    if (this.#tcxSupported) {
      try {
        attachTcx(programFd, ifindex, direction, pinPath);
        detachClsact(ifindex, direction);
        return 'tcx';
      } catch (error) {
        if (!isTcxUnsupported(error)) throw error;
        this.#tcxSupported = false;
      }
    }
    attachClsact(programFd, ifindex, direction);
    this.pins.remove(pinPath);
    return 'clsact';
  }
}
