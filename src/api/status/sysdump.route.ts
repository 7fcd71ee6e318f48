import type { IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { z } from 'zod';
import type { Resource } from '#api/api.js';
import { ApiError } from '#api/errors/errors.js';
import type { Management } from '#api/management.js';
import { problemOf } from '#api/nodes/ask-nodes.js';
import { errorAnswers, errorsOf } from '#api/openapi/answer.schema.js';
import { noQuery } from '#api/requests/query-parameters.js';
import type { NodeDump } from '#observe/sysdump/node-dump.js';

const LOCAL = '/api/v1/support/sysdump/local';
const CONTENT =
  'The dump contains no secrets. The node sends the archive while it collects the dump. `manifest.json` is the last file and lists all other files: ' +
  'an archive without it is incomplete.';

export const sysdumpResource: Resource = (api, { support, peers }) => {
  for (const [path, operationId, summary, isLocal] of [
    ['/api/v1/support/sysdump/cluster', 'createClusterSysdump', 'Collect a support dump of every node', false],
    [LOCAL, 'createLocalSysdump', 'Collect a support dump of this node', true],
  ] as const) {
    api.post(
      path,
      {
        config: { access: { management: 'write', ...(isLocal ? { peers: 'write' } : {}) } },
        schema: {
          operationId,
          tags: ['support'],
          summary,
          description: isLocal
            ? CONTENT
            : `${CONTENT} It has one folder per node. The manifest names the nodes that did not respond.`,
          querystring: noQuery,
          response: {
            200: {
              description: 'A .tar.gz with a manifest and one folder per node.',
              content: { 'application/gzip': { schema: z.string().meta({ format: 'binary' }) } },
            },
            ...errorAnswers(...errorsOf.write, 'sysdump_running'),
          },
        },
      },
      async (_request, reply) => {
        const others = isLocal ? [] : await peers.others();
        const dump = support.begin(others.map(({ id }) => dumpOf(id, peers)));
        if (dump === 'running') throw new ApiError('sysdump_running');
        if (dump === 'closed') throw new ApiError('draining');
        reply.header('content-disposition', `attachment; filename="${dump.fileName}"`).type('application/gzip');
        // The body is a stream of bytes, but the response schema declares a string. The cast hides this
        // difference from TypeScript.
        return reply.send(dump.archive as never);
      },
    );
  }
};

function dumpOf(node: string, peers: Management['peers']): NodeDump {
  return {
    node,
    async open(signal) {
      const response = await peers.open(node, { method: 'POST', path: LOCAL }, signal);
      if (response.statusCode !== 200) throw new Error(await refusalOf(response));
      return response;
    },
  };
}

async function refusalOf(response: IncomingMessage): Promise<string> {
  const body = await text(response);
  try {
    return problemOf(response.statusCode ?? 0, JSON.parse(body) as unknown);
  } catch {
    return problemOf(response.statusCode ?? 0, null);
  }
}
