import { type EventObject, fromCallback, fromPromise } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import type { Datapath } from '#contracts/datapath/datapath.js';
import type { InterceptCaSetting } from '#service-plane/ca/intercept-ca-setting.js';
import type { ServicePlane } from '#service-plane/service-plane.js';
import { AddressChanges } from '#sockets/routes/address-changes.js';
import { servicePlaneChart } from '#statecharts/service-plane.chart.js';
import { configuredBy } from './configured.js';
import { settingsActor } from './settings.actor.js';

/** The service plane, and the intercept CA that signs its leaf certificates. */
export type ServicePlanePorts = {
  readonly plane: ServicePlane;
  readonly interceptCa: Pick<InterceptCaSetting, 'changed'>;
};

/**
 * Creates the actor of the service plane (TLS and HTTP inspection): its statechart, which acts on a service
 * plane and connects it to the datapath. `ports` is null if the configuration has no `service_plane` section;
 * the statechart then starts no child actor that needs a plane.
 */
export function servicePlaneActor(bus: Bus<Message>, ports: ServicePlanePorts | null, datapath: Datapath | null) {
  const configured = () => configuredBy('service_plane', ports);
  const changes = new AddressChanges();
  return servicePlaneChart.provide({
    actions: {
      use: (_, { inspection }) => {
        if (inspection !== null) configured().plane.use(inspection);
      },
    },
    actors: {
      open: fromPromise(async () => {
        changes.begin();
        await configured().plane.open({ awaitsGrants: datapath !== null });
        changes.end();
      }),
      connectGrants: fromPromise(async () => {
        const grantor = configuredBy('dataplane', datapath);
        const { plane } = configured();
        plane.spliceBy(await grantor.spliceOffload());
        plane.setGrantPorts(await Promise.all(Array.from({ length: plane.threads }, () => grantor.grantPort())));
      }),
      settings: settingsActor(bus, 'service_plane.change', async (settings) => {
        await configured().plane.change(settings);
        return { type: 'settings.changed' };
      }),
      addressChange: fromPromise(({ signal }) => changes.next(signal)),
      watch: fromCallback<EventObject>(({ sendBack }) =>
        configured().plane.watch((change) => {
          if (change.type === 'worker_died') sendBack({ type: 'service_plane.died', reason: change.reason });
          else sendBack({ type: `service_plane.${change.type}`, fault: change.fault });
        }),
      ),
      watchCa: fromCallback<EventObject>(({ sendBack }) => {
        const { plane, interceptCa } = configured();
        const watching = interceptCa.changed.subscribe((material) => {
          plane.useCa(material?.kind === 'ca' ? material.ca : null);
          const fault = material?.kind === 'unreadable' ? material.reason : null;
          sendBack({ type: 'service_plane.ca_changed', hasCa: material?.kind === 'ca', fault });
        });
        return () => watching.unsubscribe();
      }),
    },
  });
}
