import { type DatapathOptions, DEFAULT_TIMEOUTS_MS } from '#contracts/datapath/datapath-options.js';

/** Returns datapath options with small tables, for a node that polices lan0 and the interfaces `wan*`. */
export function datapathOptions(pinPath: string, more: Partial<DatapathOptions> = {}): DatapathOptions {
  return {
    interfaces: ['lan0', 'wan*'],
    ipv6: 'drop',
    routerPorts: [],
    nonIpv4: 'drop',
    reversePath: 'strict',
    pickupMs: 0,
    flowCapacity: 1_024,
    flowShare: 1,
    timeoutsMs: DEFAULT_TIMEOUTS_MS,
    policeLocal: false,
    forwarding: 'stack',
    grantCapacity: 1_024,
    markMask: 0x00f0_0000,
    pinPath,
    programCapacity: 1_024,
    ...more,
  };
}
