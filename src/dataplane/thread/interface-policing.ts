import type { Attachment } from '#contracts/datapath/datapath.js';
import { type DatapathOptions, matchesInterface, policedFamilies } from '#contracts/datapath/datapath-options.js';
import type { RenamedPolicing } from '#contracts/datapath/renamed-interface.js';
import { type PolicedInterface, renamedAmong } from '#dataplane/attach/interfaces/policed-names.js';
import { writePorts } from '#dataplane/attach/interfaces/port-table.js';
import { refuseOtherNodes } from '#dataplane/attach/weir-hooks.js';
import { DIRECTIONS } from '#dataplane/loader/direction.js';
import { policedPorts } from '#dataplane/review/review.js';
import { makeDiversion, removeDiversion } from '#dataplane/routes/divert.js';
import type { Upgrade } from '#dataplane/upgrade/upgrade.js';
import type { KernelChanges } from './kernel-changes.js';
import { type KernelParts, programIds } from './kernel-parts.js';
import type { OpenDatapath } from './open-datapath.js';

/** An interface to which the hooks could not be attached. `name`: its name in the configuration. */
type FailedInterface = { readonly name: string; readonly error: Error };

/**
 * Puts the BPF programs of an open datapath on the hooks of the policed interfaces, and makes the guard
 * (nftables rules of Weir).
 */
export class InterfacePolicing {
  constructor(
    private readonly kernel: KernelParts,
    private readonly changes: KernelChanges,
    private readonly options: Pick<DatapathOptions, 'ipv6' | 'markMask' | 'passWithoutPolicy' | 'routerPorts'>,
  ) {}

  /** Attaches the policed interfaces. Throws if an interface with one of these names cannot be attached. */
  attach(open: OpenDatapath, required = this.kernel.hooks.names): Attachment[] {
    const { ownership, pins, guard, hooks, translation } = this.kernel;
    const { upgrade } = open;
    // An operator may have removed the pin folders, with all links and pins in them. Create the folders
    // again before the hooks are attached.
    ownership.acquire(() => pins.prepare());
    upgrade.restorePins();
    // Make the guard (Weir's nftables rules) before the hooks are attached. Without the guard, the kernel
    // would forward unclassified packets from an interface until its BPF program is attached. If such packets
    // are to pass until the first policy is in force, the guard must not drop them before the programs mark
    // them.
    const isOpen = this.options.passWithoutPolicy === true && upgrade.inForce() === null;
    const { policed } = hooks.interfaces();
    guard.policeRenamed(renamedAmong(policed).map(({ ifindex }) => ifindex));
    if (!isOpen) guard.make();
    if (this.changes.diverts) makeDiversion(this.options.markMask, policedFamilies(this.options));
    else removeDiversion();
    writePorts(upgrade.loaded.object.mapFd('ports'), policedPorts(policed, this.options));
    const { attachments, failures } = this.#putOnHooks(open, policed);
    if (isOpen) guard.make();
    hooks.prune();
    this.changes.lookAtNames(policed);
    this.changes.attached(policed);
    // Load the forward judge (a netfilter program) before this datapath takes over: if this fails, the
    // predecessor stays in force.
    if (upgrade.awaitsFlip) translation.await(upgrade.loaded);
    if (this.#hookWithOtherProgram(upgrade, policed) === undefined) upgrade.advance(() => this.switchHooks(open));
    if (!upgrade.awaitsFlip) this.#guardOwnOnly();
    translation.follow(upgrade);
    this.changes.lookAtForwarding(upgrade);
    const failed = failures.find(({ name }) => matchesInterface(required, name));
    if (failed !== undefined) throw failed.error;
    return attachments;
  }

  /**
   * Replaces the names of the policed interfaces. The added interfaces are attached before the removed ones
   * are detached, so that a failure leaves no interface of the former names without a policy. A failure on an
   * interface that only the former names match is ignored. Throws `owned_elsewhere` if an added interface has
   * programs of another node.
   */
  police(open: OpenDatapath, interfaces: readonly string[], renamed: RenamedPolicing): Attachment[] {
    const { hooks, pins } = this.kernel;
    const before = hooks.names;
    try {
      if (renamed === 'restore') hooks.restoreRenamed();
      this.name([...new Set([...before, ...interfaces])]);
      refuseOtherNodes(pins.path, hooks.interfaces().policed, hooks.attachedPrograms());
      this.#attachNamed(open, interfaces);
      this.name(interfaces);
      if (renamed === 'release') hooks.releaseRenamed();
      return this.#attachNamed(open, interfaces);
    } catch (failure) {
      try {
        if (renamed === 'release') hooks.restoreRenamed();
        this.name(before);
        this.#attachNamed(open, before);
      } catch {
        // Ignore the error: `look` reports each interface that is not attached, and the dataplane actor
        // attaches it again.
      }
      throw failure;
    }
  }

  /** Replaces the names of the policed interfaces. The next call of `attach` uses them. */
  name(interfaces: readonly string[]): void {
    this.kernel.hooks.police(interfaces);
    this.kernel.guard.police(interfaces);
  }

  #attachNamed(open: OpenDatapath, required: readonly string[]): Attachment[] {
    // Record the interfaces of this change, so that `look` does not report them as appeared or vanished.
    this.changes.attached(this.kernel.hooks.interfaces().policed);
    return this.attach(open, required);
  }

  /** Attaches the BPF programs of `Upgrade.programs` to every hook (`SwitchHooks`). */
  switchHooks(open: OpenDatapath): void {
    const { policed } = this.kernel.hooks.interfaces();
    const { failures } = this.#putOnHooks(open, policed);
    const other = this.#hookWithOtherProgram(open.upgrade, policed);
    if (other !== undefined)
      throw (
        failures[0]?.error ??
        new Error(`switch the hooks of the interfaces to the new BPF programs: ${other} still has another program`)
      );
    this.kernel.translation.follow(open.upgrade);
  }

  /** Must be called after the new datapath has put its first policy in force. */
  completeTakeover(open: OpenDatapath): void {
    open.upgrade.complete(() => {
      this.#putOnHooks(open, this.kernel.hooks.interfaces().policed);
      this.kernel.translation.follow(open.upgrade);
    });
    this.#guardOwnOnly();
  }

  #putOnHooks(
    open: OpenDatapath,
    policed: readonly PolicedInterface[],
  ): { attachments: Attachment[]; failures: FailedInterface[] } {
    open.holdsHooks = true;
    const { hooks } = this.kernel;
    const { programs } = open.upgrade;
    const fds = { ingress: programs.programFd('weir_ingress'), egress: programs.programFd('weir_egress') };
    const attachments: Attachment[] = [];
    const failures: FailedInterface[] = [];
    for (const found of policed) {
      try {
        attachments.push(hooks.attach(found, fds));
      } catch (error) {
        // Continue with the other interfaces. The guard (nftables rules of Weir) drops forwarded packets from
        // the interface whose hook could not be attached.
        if (hooks.isThere(found)) failures.push({ name: found.renamedFrom ?? found.name, error: error as Error });
      }
    }
    return { attachments, failures };
  }

  /**
   * Returns a hook of these interfaces that has a program of Weir other than that of `Upgrade.programs`;
   * undefined if there is none.
   */
  #hookWithOtherProgram({ programs }: Upgrade, policed: readonly PolicedInterface[]): string | undefined {
    const own = programIds(programs);
    for (const found of policed) {
      for (const direction of DIRECTIONS) {
        const attached = this.kernel.hooks.attachedProgram(found, direction);
        if (attached !== undefined && attached.programId !== own[direction])
          return `the ${direction} hook of ${found.name}`;
      }
    }
    return undefined;
  }

  /**
   * Makes the guard (nftables rules of Weir) accept only the mark bit of this process. May be called only
   * when no BPF program of an earlier process is attached any more, because such a program may set another
   * mark bit.
   */
  #guardOwnOnly(): void {
    this.kernel.guard.acceptOwnOnly();
    this.kernel.guard.make();
  }
}
