import type { Attachment } from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import { type Interface, isEthernet, listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import {
  type PolicedInterface,
  PolicedNames,
  policedAmong,
  renamedAmong,
} from '#dataplane/attach/interfaces/policed-names.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import {
  attachClsact,
  attachTcx,
  clsactProgram,
  detachClsact,
  isTcxUnsupported,
  tcxProgram,
} from './attach-program.js';
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
  readonly #policedNames: PolicedNames;
  /**
   * The names of policed interfaces before the last `releaseRenamed`; `restoreRenamed` records them again.
   */
  #beforeRelease: ReadonlyMap<number, string> = new Map();

  constructor(
    readonly options: Pick<DatapathOptions, 'interfaces' | 'forceClsact' | 'policeLocal' | 'servicePlane'>,
    readonly pins: Pins,
  ) {
    this.#tcxSupported = options.forceClsact !== true;
    this.#patterns = options.interfaces;
    this.#policedNames = new PolicedNames(pins.names);
  }

  /**
   * Finds the interfaces to which an earlier process attached its BPF programs, and their names at that time.
   */
  load(): void {
    const all = listInterfaces();
    this.#policedNames.load((ifindex) => {
      const found = all.find((each) => each.ifindex === ifindex);
      return found !== undefined && this.attachedProgram(found, 'ingress') !== undefined;
    });
  }

  /** Makes the next call of `prune` detach Weir's programs from policed interfaces that were renamed. */
  releaseRenamed(): void {
    this.#beforeRelease = new Map(this.#policedNames.all);
    for (const { ifindex } of renamedAmong(this.interfaces().policed)) this.#policedNames.forget(ifindex);
  }

  /** Reverses the last `releaseRenamed`, so that `prune` keeps the BPF programs of renamed interfaces. */
  restoreRenamed(): void {
    for (const [ifindex, name] of this.#beforeRelease) {
      if (!this.#policedNames.all.has(ifindex)) this.#policedNames.note(ifindex, name);
    }
    this.#beforeRelease = new Map();
  }

  /** Replaces the names of the policed interfaces. The next calls of `attach` and `prune` use them. */
  police(interfaces: readonly string[]): void {
    this.#patterns = interfaces;
  }

  /** The configured names of the policed interfaces. */
  get names(): readonly string[] {
    return this.#patterns;
  }

  interfaces(): { readonly all: readonly Interface[]; readonly policed: readonly PolicedInterface[] } {
    const all = listInterfaces();
    return { all, policed: policedAmong(all, this.#patterns, this.#policedNames.all) };
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
    const { all, policed } = this.interfaces();
    const hasUnpoliced =
      all.filter(({ name }) => name !== 'lo').length > policed.filter(({ name }) => name !== 'lo').length;
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

  attach(policed: PolicedInterface, programs: HookPrograms): Attachment {
    const { name, ifindex, renamedFrom } = policed;
    this.#policedNames.note(ifindex, renamedFrom ?? name);
    if (!isEthernet(name)) throw new UnsupportedInterface(name);
    const wanted = this.directions();
    // Attach egress before ingress. If ingress let in a new flow first, replies of that flow could leave
    // before an egress hook exists to classify them.
    const by = this.#attach(ifindex, 'egress', wanted.includes('egress') ? programs.egress : undefined);
    return {
      interface: name,
      ifindex,
      by: this.#attach(ifindex, 'ingress', programs.ingress) ?? by ?? 'tcx',
      renamedFrom: renamedFrom ?? null,
    };
  }

  /**
   * Detaches Weir's BPF programs from interfaces that are not policed any more, and removes the pins of links
   * to interfaces that no longer exist.
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
    for (const ifindex of this.#policedNames.all.keys()) {
      if (!kept.has(ifindex)) this.#policedNames.forget(ifindex);
    }
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
