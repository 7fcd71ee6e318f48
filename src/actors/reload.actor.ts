import { fromPromise } from 'xstate';
import { ask } from '#bus/ask.js';
import type { Bus } from '#bus/bus.js';
import type { Message } from '#bus/bus-messages.js';
import { accepted } from '#bus/refused.js';
import type {
  DnsSettings,
  ReloadPart,
  ReloadPlan,
  ReloadRequest,
  ServicePlaneSettings,
} from '#contracts/config/config-reload.js';
import type { RenamedPolicing } from '#contracts/datapath/renamed-interface.js';
import { reloadChart } from '#statecharts/reload.chart.js';
import { configuredBy } from './configured.js';

/** The time in milliseconds within which a part must respond to a change of its settings. */
const CHANGE_TIMEOUT_MS = 20_000;

/** The settings of the parts that are actors. Null: the node does not have the part. */
export type PartSettings = {
  readonly interfaces: readonly string[] | null;
  readonly dns: DnsSettings | null;
  readonly servicePlane: ServicePlaneSettings | null;
};

export type ReloadPorts = {
  /** Reads and validates the file, and compares it. Rejects with a `Refused` if the file is not valid. */
  read(request: ReloadRequest): Promise<ReloadPlan>;
  /** Checks whether the request may make the changes of the plan. Rejects with a `Refused` if not. */
  validate(plan: ReloadPlan, request: ReloadRequest): Promise<void>;
  /** The settings of the file that was read last, or those of the running configuration. */
  settings(which: 'next' | 'running'): PartSettings;
  /** Applies the settings to a part that is not an actor. Rejects if the part keeps its former settings. */
  change(part: Exclude<ReloadPart, 'dataplane' | 'dns' | 'service_plane'>, which: 'next' | 'running'): Promise<void>;
  /** Makes the file that was read last the running configuration. */
  commit(): void;
};

export function reloadActor(bus: Bus<Message>, ports: ReloadPorts | null) {
  const configured = (): ReloadPorts => {
    if (ports === null) throw new Error('this node has no configuration file');
    return ports;
  };
  const change = async (part: ReloadPart, which: 'next' | 'running', renamed: RenamedPolicing): Promise<void> => {
    const { interfaces, dns, servicePlane } = configured().settings(which);
    switch (part) {
      case 'dataplane':
        accepted(
          await ask(
            bus,
            'interfaces.change',
            { settings: { names: configuredBy('dataplane', interfaces), renamed } },
            CHANGE_TIMEOUT_MS,
          ),
        );
        return;
      case 'dns':
        accepted(await ask(bus, 'dns.change', { settings: configuredBy('dns', dns) }, CHANGE_TIMEOUT_MS));
        return;
      case 'service_plane':
        accepted(
          await ask(
            bus,
            'service_plane.change',
            { settings: configuredBy('service_plane', servicePlane) },
            CHANGE_TIMEOUT_MS,
          ),
        );
        return;
      default:
        await configured().change(part, which);
    }
  };
  return reloadChart.provide({
    guards: { isGivenUp: ({ context }) => (context.queue[0]?.until ?? Number.POSITIVE_INFINITY) <= performance.now() },
    actions: { publish: (_, { message }) => bus.publish(message), commit: () => configured().commit() },
    actors: {
      read: fromPromise<ReloadPlan, { request: ReloadRequest }>(async ({ input }) => configured().read(input.request)),
      validate: fromPromise<void, { plan: ReloadPlan; request: ReloadRequest }>(async ({ input }) =>
        configured().validate(input.plan, input.request),
      ),
      apply: fromPromise<void, { part: ReloadPart; request: ReloadRequest }>(({ input: { part, request } }) =>
        change(part, 'next', request.allowUnpoliced ? 'release' : 'keep'),
      ),
      restore: fromPromise<void, { part: ReloadPart; request: ReloadRequest }>(({ input: { part, request } }) =>
        change(part, 'running', request.allowUnpoliced ? 'restore' : 'keep'),
      ),
    },
  });
}
