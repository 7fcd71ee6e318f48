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

/** The programs of the two hooks, by file descriptor. */
export type HookPrograms = Readonly<Record<Direction, number>>;

/** The hooks of the policed interfaces. What they hold is in the kernel, and is asked for there. */
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

  /** False once an interface was removed, renamed or moved away. */
  isThere({ name, ifindex }: Interface): boolean {
    return listInterfaces().some((found) => found.name === name && found.ifindex === ifindex);
  }

  /**
   * What goes out is looked at only where something could that was not judged when it came in: from the node, or from an
   * interface that is not policed; and where the service plane must not say all that the kernel says in its name.
   */
  directions(): readonly Direction[] {
    const foreign = listInterfaces().some(({ name }) => name !== 'lo' && !this.#isPoliced(name));
    const { policeLocal, servicePlane } = this.options;
    return policeLocal || foreign || servicePlane != null ? ['ingress', 'egress'] : ['ingress'];
  }

  /** The program that is on a hook, and what holds it. */
  held(
    { ifindex }: Interface,
    direction: Direction,
  ): { readonly programId: number; readonly by: Attachment['by'] } | undefined {
    const tcx = tcxProgram(ifindex, this.pins.link(ifindex, direction));
    if (tcx !== undefined) return { programId: tcx, by: 'tcx' };
    const clsact = clsactProgram(ifindex, direction);
    return clsact === undefined ? undefined : { programId: clsact, by: 'clsact' };
  }

  /** The ids of all programs that are held on any interface. */
  heldPrograms(): number[] {
    return listInterfaces().flatMap((found) =>
      DIRECTIONS.flatMap((direction) => this.held(found, direction)?.programId ?? []),
    );
  }

  attach(policed: Interface, programs: HookPrograms): Attachment {
    const { name, ifindex } = policed;
    if (!isEthernet(name)) throw new UnsupportedInterface(name);
    const wanted = this.directions();
    // Who comes in is judged only once its replies can be.
    const by = this.#attach(ifindex, 'egress', wanted.includes('egress') ? programs.egress : undefined);
    return { interface: name, ifindex, by: this.#attach(ifindex, 'ingress', programs.ingress) ?? by ?? 'tcx' };
  }

  /** Lets go of interfaces that are gone, or that the configuration names no more. */
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

  /** Puts a program on a hook, or none. */
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
