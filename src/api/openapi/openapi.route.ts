import { createHash } from 'node:crypto';
import swagger from '@fastify/swagger';
import type { FastifyPluginAsync } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { z } from 'zod';
import type { Api } from '#api/api.js';
import { isUnchanged } from '#api/requests/preconditions.js';
import { empty, errorAnswers, errorsOf } from './answer.schema.js';
import { mergeComponents } from './openapi-components.js';
import { describeAnswers, describeRequest } from './openapi-operations.js';

const TAGS = {
  policy: 'The active policy, in singleton form.',
  policies: 'Stored policies, in envelope form.',
  assertions: 'Statements about flows that each write of the policy in force must keep.',
  settings: 'Settings of the node or cluster.',
  cluster: 'The nodes that share policies and settings on etcd.',
  integrations: 'The Kubernetes clusters that resolve dynamic sources.',
  tokens: 'Who may use this API.',
  observation: 'Readiness, statistics, findings and live traffic.',
  support: 'Support dumps and statecharts.',
};

/**
 * Serves the OpenAPI document. The document describes the routes that are registered after this plugin, and
 * is generated at the first request.
 */
export function openapiResource(version: string): FastifyPluginAsync {
  const plugin: FastifyPluginAsync = async (fastify) => {
    const api = fastify as unknown as Api;
    await api.register(swagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'Weir management API',
          version,
          description:
            'Enforces network policies on a node. This document describes the running version and is not a ' +
            'long-term compatibility contract; new optional members may be added.',
          license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
        },
        servers: [{ url: '/' }],
        tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
        components: {
          securitySchemes: {
            bearer: {
              type: 'http',
              scheme: 'bearer',
              bearerFormat: 'JWT',
              description: 'A token from `weir token create`.',
            },
            session: {
              type: 'apiKey',
              in: 'cookie',
              name: 'weir-session',
              description:
                'The cookie that `POST /api/v1/session` returns. Its name also has the host and the port of the node, and with TLS the prefix `__Host-`.',
            },
          },
        },
      },
      transform: (document) => describeRequest(document.route, jsonSchemaTransform(document)),
      transformObject: (document) => describeAnswers(mergeComponents(jsonSchemaTransformObject(document))),
    });

    let rendered: { readonly text: string; readonly etag: string } | undefined;
    api.get(
      '/openapi/service-v1.json',
      {
        config: { access: { management: 'public' } },
        schema: {
          operationId: 'getOpenApi',
          tags: ['observation'],
          summary: 'This document',
          response: {
            200: z.unknown().describe('An OpenAPI 3.1 document.'),
            304: empty,
            ...errorAnswers(...errorsOf.public),
          },
        },
      },
      async (request, reply) => {
        if (rendered === undefined) {
          const text = JSON.stringify(api.swagger());
          rendered = { text, etag: `"${createHash('sha256').update(text).digest('base64url')}"` };
        }
        reply.header('cache-control', 'no-cache');
        if (isUnchanged(request, reply, rendered.etag)) return reply.code(304).send();
        return reply.type('application/json; charset=utf-8').send(Buffer.from(rendered.text));
      },
    );
  };
  // Fastify gives a plugin its own scope by default. In such a scope, the hooks of the plugin would not see
  // the routes of other plugins.
  return Object.assign(plugin, { [Symbol.for('skip-override')]: true });
}
