import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Datapath } from '#dataplane/datapath.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import { dnsProxyChart } from '#statecharts/dns-proxy.chart.js';

/** Binds the DNS proxy's chart to a proxy, and that to the datapath; without one, to nothing that it would ever ask. */
export function dnsProxyActor(proxy: DnsProxy | null, datapath: Datapath | null) {
  const asked = (): DnsProxy => {
    if (proxy === null) throw new Error('the configuration has no dns section');
    return proxy;
  };
  return dnsProxyChart.provide({
    actions: {
      use: (_, { lookups }) => {
        if (lookups !== null) asked().use(lookups);
      },
    },
    actors: {
      open: fromPromise(() => asked().open()),
      connectGrants: fromPromise(async () => {
        if (datapath === null) throw new Error('the configuration has no dataplane section');
        asked().grantBy(await datapath.grantDoor());
      }),
      watch: fromCallback<EventObject>(({ sendBack }) =>
        asked().watch((change) => {
          if (change.type === 'worker_died') sendBack({ type: 'dns.died', reason: change.reason });
          else sendBack({ type: 'dns.upstreams_changed', alive: change.alive, dead: change.dead });
        }),
      ),
    },
  });
}
