import type { Attachment } from '#dataplane/datapath.js';
import { attachClsact, attachTcx, clsactProgram, detachClsact, isTcxUnsupported, tcxProgram } from './hook.js';
import { type Interface, isEthernet, listInterfaces } from './interfaces.js';
import type { DatapathOptions } from './options.js';
import { matchesInterface } from './options.js';
import type { Pins } from './pins.js';

class UnsupportedInterface extends Error {
  override readonly name = 'UnsupportedInterface';
  readonly code = 'unsupported_interface';
  constructor(readonly interfaceName: string) {
    super(`${interfaceName} is not an Ethernet interface, and the datapath reads nothing else`);
  }
}

/** The ingress hooks of the policed interfaces. What they hold is in the kernel, and is asked for there. */
export class Hooks {
  #tcxSupported: boolean;

  constructor(
    readonly options: Pick<DatapathOptions, 'interfaces' | 'forceClsact'>,
    readonly pins: Pins,
  ) {
    this.#tcxSupported = options.forceClsact !== true;
  }

  policed(): Interface[] {
    return listInterfaces().filter(({ name }) => matchesInterface(this.options.interfaces, name));
  }

  /** The program that judges what comes in there, and what holds it. */
  held({ ifindex }: Interface): { readonly programId: number; readonly by: Attachment['by'] } | undefined {
    const tcx = tcxProgram(ifindex, this.pins.link(ifindex));
    if (tcx !== undefined) return { programId: tcx, by: 'tcx' };
    const clsact = clsactProgram(ifindex);
    return clsact === undefined ? undefined : { programId: clsact, by: 'clsact' };
  }

  attach(policed: Interface, programFd: number): Attachment {
    const { name, ifindex } = policed;
    if (!isEthernet(name)) throw new UnsupportedInterface(name);
    if (this.#tcxSupported) {
      try {
        attachTcx(programFd, ifindex, this.pins.link(ifindex));
        detachClsact(ifindex);
        return { interface: name, ifindex, by: 'tcx' };
      } catch (error) {
        if (!isTcxUnsupported(error)) throw error;
        this.#tcxSupported = false;
      }
    }
    attachClsact(programFd, ifindex);
    this.pins.remove(this.pins.link(ifindex));
    return { interface: name, ifindex, by: 'clsact' };
  }

  /** Lets go of interfaces that are gone, or that the configuration names no more. */
  prune(): void {
    const policed = new Set(this.policed().map(({ ifindex }) => ifindex));
    for (const ifindex of this.pins.linkedInterfaces()) {
      if (!policed.has(ifindex)) this.pins.remove(this.pins.link(ifindex));
    }
    for (const { ifindex } of listInterfaces()) {
      if (!policed.has(ifindex)) detachClsact(ifindex);
    }
  }

  detachAll(): void {
    this.pins.remove(this.pins.links);
    for (const { ifindex } of listInterfaces()) detachClsact(ifindex);
  }
}
