import { setTimeout as pause } from 'node:timers/promises';
import { NEVER, Observable, share } from 'rxjs';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import type { ServicePlaneStats } from '#contracts/service-plane/service-plane-stats.js';
import type { ServicePlane } from './service-plane.js';

/** Access to the statistics and decided connections of the service plane (TLS and HTTP inspection). */
export type ServicePlaneState = {
  /**
   * Returns the statistics of the service plane (TLS and HTTP inspection); null while the plane is not open.
   */
  stats(): Promise<ServicePlaneStats | null>;
  /**
   * Emits each connection after the service plane (TLS and HTTP inspection) has decided it, and never
   * completes. Allowed connections are included only after `setWanted(true)`.
   */
  readonly seen: Observable<SeenConnections>;
  setWanted(wanted: boolean): void;
  /**
   * Resolves when the service plane (TLS and HTTP inspection) has decided all open connections by the policy
   * in force, or after two seconds.
   */
  decided(): Promise<void>;
};

const DECIDED_MS = 2_000;

/**
 * Creates access to a service plane (TLS and HTTP inspection); `plane` is null on a node without a service
 * plane. `isServing` returns whether the plane is open.
 */
export function servicePlaneStateOver(plane: ServicePlane | null, isServing: () => boolean): ServicePlaneState {
  return {
    stats: async () => (plane !== null && isServing() ? plane.stats().catch(() => null) : null),
    decided: async () => {
      if (plane === null || !isServing()) return;
      await Promise.race([plane.decided().catch(() => {}), pause(DECIDED_MS, undefined, { ref: false })]);
    },
    setWanted: (wanted) => plane?.setAllowedWanted(wanted),
    seen:
      plane === null
        ? NEVER
        : new Observable<SeenConnections>((observer) => plane.observe((seen) => observer.next(seen))).pipe(share()),
  };
}
