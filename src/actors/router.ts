import type { AnyActorRef, Subscription } from 'xstate';
import type { Bus } from '#bus/bus.js';
import type { AnswerMessage, Message } from '#bus/bus-messages.js';
import { refusal } from '#contracts/refusal.js';
import type { Part } from '#statecharts/node.chart.js';

type Recipient = Part | 'node';

/** For each type of bus message, the actors that receive it. */
export const ROUTES: Readonly<Record<Message['type'], readonly Recipient[]>> = {
  'policy.write_requested': ['policy'],
  'performance_mode.write_requested': ['performanceMode'],
  'program.stage_requested': ['dataplane'],
  'program.flip_requested': ['dataplane'],
  'program.unstage_requested': ['dataplane'],
  'config.reload_requested': ['reload'],
  'interfaces.change_requested': ['dataplane'],
  'dns.change_requested': ['dnsProxy'],
  'service_plane.change_requested': ['servicePlane'],
  'program.desired': ['dataplane'],
  'program.rejected': ['policy'],
  'program.proved': [],
  'program.disproved': [],
  'dataplane.adopted': [],
  'dataplane.attached': ['policy'],
  'dataplane.enforcing': ['policy', 'dnsProxy', 'servicePlane'],
  'dataplane.lost': ['policy', 'dnsProxy', 'servicePlane'],
  'dataplane.closed': ['node', 'dnsProxy', 'servicePlane'],
  'dataplane.release_requested': ['dataplane'],
  'policy.activated': ['node', 'dataplane', 'dnsProxy', 'servicePlane', 'cluster'],
  'policy.committed': ['policy', 'cluster'],
  'membership.changed': ['policy'],
  'policy.change_ended': [],
  'policy.proposed': ['policy'],
  'policy.proposal_ended': ['policy'],
  'cluster.recovered': ['cluster'],
  'policy.drained': ['node'],
  'node.draining': ['policy'],
  'config.reloaded': [],
  'performance_mode.changed': [],
  // No actor receives responses by this table: each requester subscribes to its response on the bus.
  'policy.write_answered': [],
  'performance_mode.write_answered': [],
  'program.stage_answered': [],
  'program.flip_answered': [],
  'program.unstage_answered': [],
  'config.reload_answered': [],
  'interfaces.change_answered': [],
  'dns.change_answered': [],
  'service_plane.change_answered': [],
};

/**
 * Sends every bus message to the actors in `ROUTES`. If a request is for an actor that has ended and is being
 * restarted, immediately publishes a refusal of the request.
 */
export function routeMessages(
  bus: Bus<Message>,
  actorOf: (recipient: Recipient) => AnyActorRef | undefined,
): Subscription {
  return bus.messages.subscribe((message) => {
    for (const recipient of ROUTES[message.type]) {
      const actor = actorOf(recipient);
      if (actor !== undefined && isActive(actor)) actor.send(message);
      else refuse(bus, message, recipient);
    }
  });
}

function isActive(actor: AnyActorRef): boolean {
  return (actor.getSnapshot() as { status: string }).status === 'active';
}

function refuse(bus: Bus<Message>, message: Message, recipient: Recipient): void {
  const outcome = refusal('feature_unavailable', `the ${recipient} actor failed and is being restarted`);
  switch (message.type) {
    case 'policy.write_requested':
    case 'performance_mode.write_requested':
    case 'program.stage_requested':
    case 'program.flip_requested':
    case 'program.unstage_requested':
    case 'config.reload_requested':
    case 'interfaces.change_requested':
    case 'dns.change_requested':
    case 'service_plane.change_requested': {
      const type = message.type.replace('_requested', '_answered');
      bus.publish({ type, id: message.id, outcome } as AnswerMessage);
      break;
    }
    default:
  }
}
