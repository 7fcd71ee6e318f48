import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import type { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import { TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import type { Need } from '#dataplane/object/capacity.js';
import { LentObjects } from '#dataplane/object/lent-objects.js';
import { familyObjectsOf, type LoadedObject } from '#dataplane/object/loaded-object.js';
import type { SwitchHooks, Upgrade } from '#dataplane/upgrade/upgrade.js';
import { MemberChanges } from './member-changes.js';

/** The objects of a datapath from `LocalDatapath.open` to `close`. They use maps of the loaded BPF object. */
export class OpenDatapath {
  readonly lent: LentObjects;
  readonly memberChanges: MemberChanges;
  /** Whether programs of this process may be on hooks. If not, `close` removes their pins. */
  holdsHooks = false;
  readonly #flowRenewal: FlowRenewal;
  #trafficStatistics: TrafficStatistics;

  constructor(
    readonly upgrade: Upgrade,
    private readonly groupCounters: GroupCounters | undefined,
  ) {
    const { loaded } = upgrade;
    this.lent = new LentObjects(loaded.object);
    try {
      this.#flowRenewal = new FlowRenewal(() => familyObjectsOf(this.loaded));
      this.#trafficStatistics = new TrafficStatistics(loaded, undefined, groupCounters);
    } catch (failure) {
      this.lent.close();
      throw failure;
    }
    this.memberChanges = new MemberChanges(() => {
      const { members, slots } = this.loaded;
      return { members, slots, hasFormerPrograms: upgrade.hasHandover || !this.holdsHooks };
    }, this.#flowRenewal);
  }

  get loaded(): LoadedObject {
    return this.upgrade.loaded;
  }

  get trafficStatistics(): TrafficStatistics {
    return this.#trafficStatistics;
  }

  /** Replaces the maps by larger ones if needed (`Upgrade.grow`), also for the traffic statistics. */
  grow(need: Need, switchHooks: SwitchHooks): boolean {
    const hasGrown = this.upgrade.grow(need, switchHooks);
    if (hasGrown) this.#renewTrafficStatistics();
    return hasGrown;
  }

  #renewTrafficStatistics(): void {
    const replaced = this.#trafficStatistics;
    replaced.collectGroups();
    replaced.close();
    this.#trafficStatistics = new TrafficStatistics(this.loaded, replaced.ruleNameHistory, this.groupCounters);
  }

  close(): void {
    this.#trafficStatistics.close();
    this.lent.close();
    this.#flowRenewal.unmap();
    if (!this.holdsHooks) this.upgrade.unpin();
    this.upgrade.close();
  }
}
