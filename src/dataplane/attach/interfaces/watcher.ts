import { isDeepStrictEqual } from 'node:util';
import type { DatapathChange, FlowRefusal, Review } from '#contracts/datapath/datapath.js';
import type { Interface } from './interfaces.js';

/**
 * Compares the present interfaces, hooks, guard (Weir's nftables rules) and pins with the state at the last
 * call of `attached`, and returns the differences. Returns each loss only once until the next call of
 * `attached`.
 */
export class Watcher {
  /**
   * The policed interfaces: interface index → interface name. Undefined before the first call of `attached`.
   */
  #known: Map<number, string> | undefined;
  readonly #reported = new Set<number>();
  #guardReportedLost = false;
  #diversionReportedLost = false;
  #pinsReportedLost = false;
  /**
   * The last result of the configuration review that `reviewed` or `changesOfReview` received; undefined
   * before the first call of `reviewed`.
   */
  #review: Review | undefined;
  #refusing: readonly FlowRefusal[] = [];

  attached(interfaces: readonly Interface[]): void {
    this.#known = new Map(interfaces.map(({ name, ifindex }) => [ifindex, name]));
    this.#reported.clear();
    this.#guardReportedLost = false;
    this.#diversionReportedLost = false;
    this.#pinsReportedLost = false;
  }

  /**
   * Returns a change for each policed interface that appeared, vanished or was renamed since the last check.
   */
  changesOfNames(policed: readonly Interface[]): DatapathChange[] {
    const known = this.#known;
    if (known === undefined) return [];
    const changes: DatapathChange[] = [];
    const now = new Map(policed.map(({ name, ifindex }) => [ifindex, name]));
    for (const [ifindex, name] of known) {
      const to = now.get(ifindex);
      if (to === name) continue;
      if (to === undefined) {
        changes.push({ type: 'interface_vanished', interface: name });
        known.delete(ifindex);
      } else {
        changes.push({ type: 'interface_renamed', interface: name, to });
        known.set(ifindex, to);
      }
    }
    for (const { name, ifindex } of policed) {
      if (known.has(ifindex)) continue;
      known.set(ifindex, name);
      this.#reported.add(ifindex);
      changes.push({ type: 'interface_appeared', interface: name });
    }
    return changes;
  }

  changesOfLinks(policed: readonly Interface[], isHeld: (policed: Interface) => boolean): DatapathChange[] {
    const lost = policed.filter(
      (found) => this.#known?.has(found.ifindex) === true && !this.#reported.has(found.ifindex) && !isHeld(found),
    );
    for (const { ifindex } of lost) this.#reported.add(ifindex);
    return lost.map(({ name }) => ({ type: 'link_lost', interface: name }));
  }

  changesOfGuard(stands: boolean): DatapathChange[] {
    if (stands || this.#guardReportedLost || this.#known === undefined) return [];
    this.#guardReportedLost = true;
    return [{ type: 'guard_lost' }];
  }

  changesOfPins(lost: readonly string[]): DatapathChange[] {
    if (lost.length === 0 || this.#pinsReportedLost || this.#known === undefined) return [];
    this.#pinsReportedLost = true;
    return [{ type: 'pins_lost', pins: lost }];
  }

  reviewed(review: Review): void {
    this.#review = review;
  }

  changesOfReview(review: Review): DatapathChange[] {
    if (this.#review === undefined || isDeepStrictEqual(review, this.#review)) return [];
    this.#review = review;
    return [{ type: 'review_changed' }];
  }

  changesOfRefusals(refusing: readonly FlowRefusal[]): DatapathChange[] {
    if (isDeepStrictEqual(refusing, this.#refusing)) return [];
    this.#refusing = refusing;
    return [{ type: 'refusals_changed', refusing }];
  }

  changesOfDiversion(stands: boolean): DatapathChange[] {
    if (stands || this.#diversionReportedLost || this.#known === undefined) return [];
    this.#diversionReportedLost = true;
    return [{ type: 'diversion_lost' }];
  }
}
