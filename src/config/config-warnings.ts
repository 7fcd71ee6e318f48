import type { ReadConfig } from './load.js';

/** Returns a warning for each value that is valid but probably a mistake. */
export function configWarnings({ config, disclosed }: Pick<ReadConfig, 'config' | 'disclosed'>): string[] {
  // `dataplane.non_ipv4: pass` also passed IPv6 in builds without the key `dataplane.ipv6`.
  if (config.dataplane?.nonIpv4 !== 'pass' || disclosed['dataplane.ipv6']?.from !== 'default') return [];
  return [
    'dataplane.non_ipv4: pass does not pass IPv6, and there is no dataplane.ipv6: forwarded IPv6 is dropped; `ipv6: pass` passes it, and `ipv6: drop` ends this warning',
  ];
}
