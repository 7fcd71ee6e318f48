import type { Attachment } from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import { matchesInterface } from '#contracts/datapath-options.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { attachClsact, attachTcx, clsactProgram, detachClsact, isTcxUnsupported, tcxProgram } from './hook.js';
import { type Interface, isEthernet, listInterfaces } from './interfaces.js';
import type { Pins } from './pins.js';

class UnsupportedInterface extends Error {
  override readonly name = 'UnsupportedInterface';
  readonly code = 'unsupported_interface';
  constructor(readonly interfaceName: string) {
    super(`${interfaceName} is not an Ethernet interface, and the datapath reads nothing else`);
  }
}

/** The programs of the two hooks, as file descriptors. */
export type HookPrograms = Readonly<Record<Direction, number>>;

/** The hooks of the policed interfaces. Their state is read from the kernel, never cached. */
export class Hooks {
  #tcxSupported: boolean;

  constructor(
    readonly options: Pick<DatapathOptions, 'interfaces' | 'forceClsact' | 'policeLocal' | 'servicePlane'>,
    readonly pins: Pins,
  ) {
    this.#tcxSupported = options.forceClsact !== true;
  }

  interfaces(): { readonly all: readonly Interface[]; readonly policed: readonly Interface[] } {
    const all = listInterfaces();
    return { all, policed: all.filter(({ name }) => this.#isPoliced(name)) };
  }

  /** False once an interface was removed, renamed or moved to another namespace. */
  isThere({ name, ifindex }: Interface): boolean {
    return listInterfaces().some((found) => found.name === name && found.ifindex === ifindex);
  }

  /**
   * Directions that need a hook. Egress is needed only where a packet may not have been classified at its
   * ingress (it comes from the node or from an interface that is not policed), or where the service plane
   * must suppress packets that the kernel sends in its name.
   */
  directions(): readonly Direction[] {
    const foreign = listInterfaces().some(({ name }) => name !== 'lo' && !this.#isPoliced(name));
    const { policeLocal, servicePlane } = this.options;
    return policeLocal || foreign || servicePlane != null ? ['ingress', 'egress'] : ['ingress'];
  }

  /** The id of the program on a hook, and the mechanism that attaches it. */
  held(
    { ifindex }: Interface,
    direction: Direction,
  ): { readonly programId: number; readonly by: Attachment['by'] } | undefined {
    const tcx = tcxProgram(ifindex, this.pins.link(ifindex, direction));
    if (tcx !== undefined) return { programId: tcx, by: 'tcx' };
    const clsact = clsactProgram(ifindex, direction);
    return clsact === undefined ? undefined : { programId: clsact, by: 'clsact' };
  }

  /** The ids of all programs that Weir attached to any interface. */
  heldPrograms(): number[] {
    return listInterfaces().flatMap((found) =>
      DIRECTIONS.flatMap((direction) => this.held(found, direction)?.programId ?? []),
    );
  }

  attach(policed: Interface, programs: HookPrograms): Attachment {
    const { name, ifindex } = policed;
    if (!isEthernet(name)) throw new UnsupportedInterface(name);
    const wanted = this.directions();
    // Egress first: a new flow must not be let in before its replies can be classified.
    const by = this.#attach(ifindex, 'egress', wanted.includes('egress') ? programs.egress : undefined);
    return { interface: name, ifindex, by: this.#attach(ifindex, 'ingress', programs.ingress) ?? by ?? 'tcx' };
  }

  /** Detaches from interfaces that are gone or no longer match the configuration. */
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
    return matchesInterface(this.options.interfaces, name);
  }

  /** Attaches a program to a hook, or detaches it if `programFd` is undefined. */
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
