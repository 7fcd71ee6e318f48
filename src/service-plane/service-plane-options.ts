import type { ServicePlaneSettings } from '#contracts/config/config-reload.js';
import type { Family } from '#contracts/policy/policy-model.js';
import type { PlaneListen } from '#contracts/service-plane/plane-address.js';

/**
 * Options of the service plane (TLS and HTTP inspection). A reload can change the members of
 * `ServicePlaneSettings`.
 */
export type ServicePlaneOptions = ServicePlaneSettings & {
  /** The IP families whose connections the datapath redirects. */
  readonly families: readonly Family[];
  /** The port to which the datapath redirects connections, and the address for those of IPv4. */
  readonly listen: PlaneListen;
  /** The number of threads that accept connections. */
  readonly workers: number;
  /**
   * The mark of the packets that the service plane (TLS and HTTP inspection) sends to clients (SO_MARK); 0
   * for no mark.
   */
  readonly mark: number;
  /**
   * The mark of the packets that the service plane (TLS and HTTP inspection) sends to servers; 0 for no mark.
   */
  readonly upstreamMark: number;
};
