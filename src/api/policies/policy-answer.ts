import type { FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { authorOf, mayAct } from '#api/access/authentication.js';
import { refused } from '#api/errors/error-answer.js';
import { preconditionsOf } from '#api/requests/preconditions.js';
import type { Form } from '#contracts/policy/policy-document.js';
import type { Warning } from '#contracts/policy/policy-problem.js';
import { etagOf } from '#contracts/policy/policy-record.js';
import type { CommitInCluster, PolicyOutcome, PolicyWrite, PolicyWritten } from '#contracts/policy/policy-write.js';
import { termsOf } from './pending-terms.js';
import type { activationQuery } from './policy.schema.js';
import { withGroup, withPolicy } from './policy-json.js';

const JSON_TYPE = 'application/json; charset=utf-8';

export const sendJson = (reply: FastifyReply, bytes: Uint8Array): FastifyReply =>
  reply.type(JSON_TYPE).send(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));

type WriteQuery = z.infer<typeof activationQuery> & { readonly activate?: boolean | undefined };
export type WriteRequest = FastifyRequest & { readonly query: WriteQuery };

/** Converts an HTTP request to a policy write. Only the operation `put` uses the request body. */
export function policyWrite(
  request: WriteRequest,
  write: Pick<PolicyWrite, 'operation' | 'target' | 'sourceGroup' | 'form'>,
): PolicyWrite {
  const { dry_run: dryRun = false, activate = true, rehearse, wait, comment, override, ...pending } = request.query;
  const terms = termsOf({ ...pending, wait });
  return {
    ...write,
    body: write.operation === 'put' ? (request.body as Uint8Array) : new Uint8Array(),
    ...preconditionsOf(request),
    activate,
    dryRun,
    mayWatch: mayAct(request),
    ...(rehearse === undefined ? {} : { rehearse }),
    ...(wait === undefined ? {} : { wait }),
    ...(terms === null ? {} : { terms }),
    ...(comment === undefined ? {} : { comment }),
    ...(override === undefined ? {} : { overrides: override }),
    author: authorOf(request),
  };
}

/**
 * Sends the response to a policy write. A response in singleton form (without name and mode) has no member
 * for warnings, so a header contains the codes of the warnings.
 */
export function answerPolicy(outcome: PolicyOutcome, form: Form, reply: FastifyReply): FastifyReply {
  switch (outcome.kind) {
    case 'refused':
      throw refused(outcome);
    case 'checked':
      return sendJson(reply, withPolicy(outcome.stored, dryRunMembers(outcome)));
    case 'deleted':
      warningHeader(reply, outcome.warnings);
      clusterHeaders(reply, outcome.cluster);
      return reply.header('weir-generation', outcome.generation).code(204).send();
    case 'written': {
      const { stored, warnings, created, proof } = outcome;
      writtenHeaders(reply, outcome);
      if (form === 'singleton') {
        warningHeader(reply, warnings);
        return sendJson(reply, stored.body);
      }
      if (created) reply.code(201).header('location', `/api/v1/policies/${stored.record.id}`);
      return sendJson(reply, withPolicy(stored, { warnings, proof }));
    }
  }
}

/**
 * Sends the response to a write of one source group. The response contains the record of the policy and the
 * group. After a removal, the response has no body.
 */
export function answerGroup(
  outcome: PolicyOutcome,
  { operation, sourceGroup = '' }: PolicyWrite,
  reply: FastifyReply,
): FastifyReply {
  switch (outcome.kind) {
    case 'refused':
      throw refused(outcome);
    case 'checked':
      return sendJson(reply, withGroup(outcome.stored, dryRunMembers(outcome)));
    case 'deleted':
      throw new Error(
        'answer a request for one source group: the policy write returned `deleted`, which only a policy can be',
      );
    case 'written': {
      const { stored, warnings, created, proof } = outcome;
      writtenHeaders(reply, outcome);
      if (operation === 'delete') {
        warningHeader(reply, warnings);
        return reply.code(204).send();
      }
      if (created) {
        const path = `/api/v1/policies/${stored.record.id}/source-groups/${encodeURIComponent(sourceGroup)}`;
        reply.code(201).header('location', path);
      }
      return sendJson(reply, withGroup(stored, { warnings, proof }));
    }
  }
}

function dryRunMembers({
  warnings,
  programLines,
  proof,
  diff,
  assertions,
}: Extract<PolicyOutcome, { kind: 'checked' }>) {
  return { dry_run: true, warnings, program_lines: programLines, proof, diff, assertions } as const;
}

function writtenHeaders(reply: FastifyReply, { stored, generation, cluster }: PolicyWritten): void {
  reply.header('etag', etagOf(stored.record)).header('weir-generation', generation);
  clusterHeaders(reply, cluster);
}

/**
 * Sets the headers of a commit in a cluster: `Weir-Revision`, and `Weir-Nodes` (the number of nodes that had
 * prepared the policy before the commit).
 */
function clusterHeaders(reply: FastifyReply, cluster: CommitInCluster | undefined): void {
  if (cluster === undefined) return;
  const { revision, nodes } = cluster;
  reply.header('weir-revision', revision);
  if (nodes !== null) reply.header('weir-nodes', `${nodes.ready}/${nodes.members}`);
}

function warningHeader(reply: FastifyReply, warnings: readonly Warning[]): void {
  const codes = new Set(warnings.map(({ code }) => code));
  if (codes.size > 0) reply.header('weir-warnings', [...codes].join(', '));
}
