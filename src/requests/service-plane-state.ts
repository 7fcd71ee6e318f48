import { NEVER, Observable, share } from 'rxjs';
import type { SeenConnections } from '#contracts/seen-connection.js';
import type { ServicePlane, ServicePlaneStats } from '#service-plane/service-plane.js';

/** What the service plane knows of the connections that it judged. */
export type Inspecting = {
  /** Null while there is none to ask. */
  stats(): Promise<ServicePlaneStats | null>;
  /** What it sees; what is allowed only while that is wanted. Never ends. */
  readonly seen: Observable<SeenConnections>;
  setWanted(wanted: boolean): void;
};

/** `isServing` says whether the plane is open. */
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
