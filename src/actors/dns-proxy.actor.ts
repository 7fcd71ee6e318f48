import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import type { DnsProxy } from '#dns/dns-proxy.js';
import { AddressChanges } from '#sockets/routes/address-changes.js';
import { dnsProxyChart } from '#statecharts/dns-proxy.chart.js';
import { configuredBy } from './configured.js';
import { settingsActor } from './settings.actor.js';

/**
 * Creates the actor of the DNS proxy: its statechart, which acts on a DNS proxy and connects it to the
 * datapath. `proxy` is null if the configuration has no `dns` section; the statechart then starts no child
 * actor that needs a proxy.
 */
export function dnsProxyActor(bus: Bus<Message>, proxy: DnsProxy | null, datapath: Datapath | null) {
  const configured = () => configuredBy('dns', proxy);
  const changes = new AddressChanges();
  return dnsProxyChart.provide({
    actions: {
      use: (_, { lookups }) => {
        if (lookups !== null) configured().use(lookups);
      },
    },
    actors: {
      open: fromPromise(async () => {
        changes.begin();
        await configured().open({ awaitsGrants: datapath !== null });
        changes.end();
      }),
      connectGrants: fromPromise(async () => {
        configured().setGrantPort(await configuredBy('dataplane', datapath).grantPort());
      }),
      settings: settingsActor(bus, 'dns.change', async (settings) => {
        await configured().change(settings);
        return { type: 'settings.changed' };
      }),
      addressChange: fromPromise(({ signal }) => changes.next(signal)),
      watch: fromCallback<EventObject>(({ sendBack }) =>
        configured().watch((change) => {
          if (change.type === 'worker_died') sendBack({ type: 'dns.died', reason: change.reason });
          else sendBack({ type: 'dns.upstreams_changed', alive: change.alive, dead: change.dead });
        }),
      ),
    },
  });
}
