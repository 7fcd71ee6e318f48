import { NEVER, Observable, share } from 'rxjs';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { ServicePlane, ServicePlaneStats } from '#service-plane/service-plane.js';

/** Statistics and connections of the service plane. */
export type Inspecting = {
  /** Null while no plane is open. */
  stats(): Promise<ServicePlaneStats | null>;
  /**
   * The connections as they are decided. Allowed ones are included only while a reader wants them. Never
   * ends.
   */
  readonly seen: Observable<SeenConnections>;
  setWanted(wanted: boolean): void;
};

/** `isServing` returns whether the plane is open. */
export function inspectingOver(plane: ServicePlane | null, isServing: () => boolean): Inspecting {
  return {
    stats: async () => (plane !== null && isServing() ? plane.stats().catch(() => null) : null),
    setWanted: (wanted) => plane?.setAllowedWanted(wanted),
    seen:
      plane === null
        ? NEVER
        : new Observable<SeenConnections>((observer) => plane.observe((seen) => observer.next(seen))).pipe(share()),
  };
}
