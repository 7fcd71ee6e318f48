import { z } from 'zod';
import { errorAnswers, errorsOf } from './answer.schema.js';
import type { Resource } from './api.js';
import { ApiError } from './errors.js';
import { noQuery } from './query-parameters.js';

export const sysdumpResource: Resource = (api, { support }) => {
  api.post(
    '/api/v1/support/sysdump/cluster',
    {
      schema: {
        operationId: 'createClusterSysdump',
        tags: ['support'],
        summary: 'Collect a support dump of every node',
        description:
          'The dump contains no secrets. The node sends the archive while it collects the dump. `manifest.json` is the last file and lists all other files: ' +
          'an archive without it is incomplete.',
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
      const dump = support.begin();
      if (dump === 'running') throw new ApiError('sysdump_running');
      if (dump === 'closed') throw new ApiError('draining');
      reply.header('content-disposition', `attachment; filename="${dump.fileName}"`).type('application/gzip');
      // The body is a stream of bytes, but the response schema declares a string. The cast hides this
      // difference from TypeScript.
      return reply.send(dump.archive as never);
    },
  );
};
