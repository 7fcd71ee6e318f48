import type { DatapathChange } from '#dataplane/datapath.js';
import type { Interface } from './interfaces.js';

/** What was attached, and what is found now. */
export type Found = {
  readonly policed: readonly Interface[];
  isHeld(policed: Interface): boolean;
  guardStands(): boolean;
};

/** Compares what is found with what was attached; a loss is told once, until it was attached again. */
export class Watcher {
  #known = new Map<string, number>();
  readonly #told = new Set<string>();

  attached(interfaces: readonly Interface[]): void {
    this.#known = new Map(interfaces.map(({ name, ifindex }) => [name, ifindex]));
    this.#told.clear();
  }

  look(found: Found): DatapathChange[] {
    const changes: DatapathChange[] = [];
    const now = new Map(found.policed.map(({ name, ifindex }) => [name, ifindex]));
    for (const [name, ifindex] of this.#known) {
      if (now.get(name) === ifindex) continue;
      changes.push({ type: 'interface_vanished', interface: name });
      this.#known.delete(name);
    }
    for (const policed of found.policed) {
      if (!this.#known.has(policed.name)) {
        this.#known.set(policed.name, policed.ifindex);
        this.#told.add(policed.name);
        changes.push({ type: 'interface_appeared', interface: policed.name });
      } else if (!this.#told.has(policed.name) && !found.isHeld(policed)) {
        this.#told.add(policed.name);
        changes.push({ type: 'link_lost', interface: policed.name });
      }
    }
    if (!this.#told.has('') && !found.guardStands()) {
      this.#told.add('');
      changes.push({ type: 'guard_lost' });
    }
    return changes;
  }
}
