import { formatAddress } from '#addresses/ip-address.js';
import type { Resource } from '#api/api.js';
import { refused } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { ONE_NODE } from '#api/nodes/ask-nodes.js';
import { flowsOfNodes } from '#api/nodes/flows-of-nodes.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { queryOf } from '#api/requests/query-string.js';
import type { LiveFlow } from '#contracts/datapath/datapath.js';
import type { Translation } from '#contracts/datapath/translation.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import type { Address } from '#contracts/policy/policy-model.js';
import {
  cutQuery,
  FlowsCutSchema,
  FlowsSchema,
  filterOf,
  flowsQuery,
  type ShownFlow,
  selects,
} from './flows.schema.js';

const PATH = '/api/v1/flows';

export const flowsResource: Resource = (api, management) => {
  const { traffic } = management;
  api.get(
    PATH,
    {
      config: { access: { management: 'read', peers: 'read' } },
      schema: {
        operationId: 'listFlows',
        tags: ['observation'],
        summary: 'Live flows of this node, or of all nodes',
        description:
          'The order of flows is fixed. A flow that starts or ends does not move other flows to another page.',
        querystring: flowsQuery,
        response: {
          200: FlowsSchema,
          ...errorAnswers(...errorsOf.read, 'feature_unavailable', 'dataplane_unavailable'),
        },
      },
    },
    async ({ query, raw }) => {
      const nodeId = management.findings.nodeId;
      const place = placeOn(nodeId, query.cursor);
      const page = await traffic.flows({ filter: filterOf(query), after: place.after, limit: query.limit });
      if ('kind' in page) throw refused(page);
      const own = {
        matched: page.matched,
        items: place.isPast ? [] : page.items.map((flow) => shown(flow, nodeId, management.ownerOf)),
        next_cursor: page.next === null || place.isPast ? null : idOf(page.next),
        ...ONE_NODE,
      };
      return query.scope === 'cluster' ? flowsOfNodes(management, own, queryOf(raw), query.limit) : own;
    },
  );

  api.delete(
    PATH,
    {
      schema: {
        operationId: 'cutFlows',
        tags: ['observation'],
        summary: 'End live flows',
        description:
          'The next packet of a removed flow is evaluated like the first packet of a new flow. A TCP packet in the middle of a connection is then out of state, unless ' +
          'the datapath picks up existing connections (`dataplane.pickup`).',
        querystring: cutQuery,
        response: {
          200: FlowsCutSchema,
          ...errorAnswers(...errorsOf.write, 'feature_unavailable', 'dataplane_unavailable'),
        },
      },
    },
    async ({ query, caller, log }) => {
      const { all = false, dry_run: dryRun = false } = query;
      if (all === selects(query)) throw unclear(all);
      const filter = filterOf(query);
      if (dryRun) {
        const page = await traffic.flows({ filter, after: null, limit: 1 });
        if ('kind' in page) throw refused(page);
        return { cut: page.matched, dry_run: true };
      }
      const outcome = await traffic.cutFlows(filter);
      if ('kind' in outcome) throw refused(outcome);
      log.info({ author: caller?.subject, query, cut: outcome.cut }, 'flows cut');
      return { cut: outcome.cut, dry_run: false };
    },
  );
};

function unclear(all: boolean): ApiError {
  const message = all
    ? 'Not allowed together with parameters that select flows.'
    : 'Required if no other parameter selects flows.';
  return new ApiError('invalid_query', `?all: ${message}`, [{ pointer: '?all', code: 'invalid_parameter', message }]);
}

const idOf = (key: Uint8Array): string => Buffer.from(key).toString('base64url');

/**
 * Returns where a page begins on this node. The cursor of a page of all nodes is `FLOW@NODE`, and nodes are
 * in the order of their ids. On nodes before NODE, all flows are on earlier pages; on nodes after NODE, the
 * page begins with the first flow.
 */
function placeOn(node: string, cursor: string | undefined): { after: Uint8Array | null; isPast: boolean } {
  const [flow = '', of = node] = cursor?.split(/@(.*)/s) ?? [];
  if (flow === '' || of < node) return { after: null, isPast: false };
  return of > node
    ? { after: null, isPast: true }
    : { after: new Uint8Array(Buffer.from(flow, 'base64url')), isPast: false };
}

function shown(flow: LiveFlow, node: string, ownerOf: (address: Address) => OwnerName | null): ShownFlow {
  const { decider, ports, packets, bytes, interfaces, translation, sourceGroups } = flow;
  const sourceOwner = ownerOf(flow.source);
  const isKnown = sourceGroups !== null && !(sourceGroups.hasSelectors && sourceOwner !== null);
  return {
    id: idOf(flow.key),
    node_id: node,
    src: formatAddress(flow.source),
    dst: formatAddress(flow.destination),
    src_owner: sourceOwner,
    dst_owner: ownerOf(flow.destination),
    proto: flow.protocol,
    src_port: ports?.[0] ?? null,
    dst_port: ports?.[1] ?? null,
    icmp_id: flow.icmpId,
    state: flow.state,
    verdict: flow.verdict,
    decided_by: decider?.kind ?? (flow.foreign ? 'nobody' : 'policy_gone'),
    source_group: decider === null || decider.kind === 'policy_default' ? null : decider.group,
    source_groups: isKnown ? [...sourceGroups.ids] : null,
    rule: decider?.kind === 'rule' ? decider.rule : null,
    foreign: flow.foreign,
    suspended: flow.suspended,
    generation: flow.generation,
    current: flow.current,
    packets: { forward: Number(packets[0]), reply: Number(packets[1]) },
    bytes: { forward: Number(bytes[0]), reply: Number(bytes[1]) },
    opened: new Date(flow.openedMs).toISOString(),
    last_seen: new Date(flow.lastSeenMs).toISOString(),
    expires_in: Math.ceil(flow.expiresInMs / 1000),
    interfaces: { in: interfaces[0], out: interfaces[1] },
    translation: translation === null ? null : shownTranslation(translation, flow),
  };
}

function shownTranslation(
  { source, destination }: Translation,
  { ports, icmpId }: LiveFlow,
): NonNullable<ShownFlow['translation']> {
  return {
    src: formatAddress(source.address),
    dst: formatAddress(destination.address),
    src_port: ports === null ? null : source.port,
    dst_port: ports === null ? null : destination.port,
    icmp_id: icmpId === null ? null : source.port,
  };
}
