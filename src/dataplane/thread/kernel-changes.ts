import { append } from '#arrays/append.js';
import type { DatapathChange, Review } from '#contracts/datapath/datapath.js';
import { type DatapathOptions, policedFamilies } from '#contracts/datapath/datapath-options.js';
import type { Interface } from '#dataplane/attach/interfaces/interfaces.js';
import { writePorts } from '#dataplane/attach/interfaces/port-table.js';
import { Watcher } from '#dataplane/attach/interfaces/watcher.js';
import { policedPorts, review } from '#dataplane/review/review.js';
import { diversionStands } from '#dataplane/routes/divert.js';
import type { Upgrade } from '#dataplane/upgrade/upgrade.js';
import type { KernelNotifications } from '#dataplane/watch/kernel-notifications.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { type KernelParts, programIds } from './kernel-parts.js';
import type { OpenDatapath } from './open-datapath.js';

/** Finds the changes of the kernel's state, and keeps them until `look` returns them. */
export class KernelChanges {
  readonly #watcher = new Watcher();
  #unreported: DatapathChange[] = [];

  constructor(
    private readonly kernel: KernelParts,
    private readonly options: DatapathOptions,
  ) {}

  /** Stores changes that another part of the thread has found, until the next call of `look` returns them. */
  add(changes: readonly DatapathChange[]): void {
    append(this.#unreported, changes);
  }

  /**
   * Whether the datapath redirects some packets to the DNS proxy or to the service plane (TLS and HTTP
   * inspection).
   */
  get diverts(): boolean {
    return this.options.divertDns === true || this.options.servicePlane != null;
  }

  /**
   * Records these interfaces as known, so that `look` does not report them as appeared or vanished
   * (`Watcher`).
   */
  attached(policed: readonly Interface[]): void {
    this.#watcher.attached(policed);
  }

  /** Compares the names of the interfaces with those at the last call of `attached`. */
  lookAtNames(policed: readonly Interface[]): void {
    this.add(this.#watcher.changesOfNames(policed));
  }

  lookAtForwarding({ loaded }: Upgrade): void {
    const { forwarding, translation } = this.kernel;
    this.add(forwarding.look(loaded.slots, translation.judgesOf(loaded)));
  }

  /**
   * Returns the faults (reasons why Weir cannot police as configured) and warnings. A later call of `look`
   * reports `review_changed` if the result differs from the result returned here.
   */
  review(): Review {
    const found = this.#review();
    this.#watcher.reviewed(found);
    return found;
  }

  #review(): Review {
    const { hooks, guard, forwarding, translation, objectOptions } = this.kernel;
    return review({
      options: this.options,
      hooks,
      guard,
      thirdPartyHooks: () => forwarding.thirdPartyHooks(),
      nat: translation.support(objectOptions),
      diverts: this.diverts,
      divertsDns: this.options.divertDns === true,
    });
  }

  /** Reads the given kinds of kernel state, and returns the changes since the last call. */
  look({ upgrade, trafficStatistics }: OpenDatapath, at: KernelNotifications): DatapathChange[] {
    const { guard, translation } = this.kernel;
    upgrade.loaded.routes.look();
    guard.retryRefused();
    // Each check stores its changes in `#unreported` before the next check runs. The watcher reports each
    // loss only once, so a loss would go unreported if a later check threw an error.
    if (at.links) this.#lookAtInterfaces(upgrade);
    if (at.links || at.thirdPartyHooks) this.#lookAtReview(upgrade);
    this.add(this.#watcher.changesOfRefusals(trafficStatistics.refusing()));
    if (at.links) this.add(this.#watcher.changesOfPins(upgrade.lostPins()));
    if (at.guard) this.add(this.#watcher.changesOfGuard(guard.stands() && translation.stands(upgrade.loaded)));
    if (at.thirdPartyHooks) {
      translation.followRules(upgrade);
      this.lookAtForwarding(upgrade);
      if (this.diverts)
        this.add(
          this.#watcher.changesOfDiversion(diversionStands(this.options.markMask, policedFamilies(this.options))),
        );
    }
    const unreported = this.#unreported;
    this.#unreported = [];
    return unreported;
  }

  /** Reviews the configuration, and tells the datapath which interfaces are bridge ports now. */
  #lookAtReview({ loaded }: Upgrade): void {
    try {
      writePorts(loaded.object.mapFd('ports'), policedPorts(this.kernel.hooks.interfaces().policed, this.options));
      this.add(this.#watcher.changesOfReview(this.#review()));
    } catch (error) {
      // The kernel's lists changed during each attempt to read them, so there is no result now. The next
      // call of `look` reads them again.
      if (!(error instanceof KernelFailure) || error.code !== 'EINTR') throw error;
    }
  }

  #lookAtInterfaces({ programs }: Upgrade): void {
    const { hooks } = this.kernel;
    const own = programIds(programs);
    const directions = hooks.directions();
    const { policed } = hooks.interfaces();
    const isAttached = (found: Interface): boolean =>
      directions.every((direction) => hooks.attachedProgram(found, direction)?.programId === own[direction]);
    this.lookAtNames(policed);
    this.add(this.#watcher.changesOfLinks(policed, isAttached));
  }
}
