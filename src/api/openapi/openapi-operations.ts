import type { FastifySchema, RouteOptions } from 'fastify';

type Transformed = { readonly schema: FastifySchema; readonly url: string };
type Answer = { description: string; headers?: Readonly<Record<string, unknown>> };
type Operation = { readonly responses: Record<string, Answer> };

const IF_MATCH = {
  type: 'string',
  description: 'Writes only if the stored ETag is in this list; otherwise the response is 412.',
};
const IF_NONE_MATCH = {
  type: 'string',
  enum: ['*'],
  description: 'Writes only if the resource does not exist yet; otherwise the response is 412.',
};
const MIN_GENERATION = {
  type: 'integer',
  minimum: 0,
  description:
    'Waits up to 2 s until the node enforces this generation or a later one; otherwise the response is 503. For reads of an own write at another node of a cluster.',
};
const UNLESS = { type: 'string', description: 'The response is 304 if the stored ETag is in this list.' };

const header = (description: string, type = 'string') => ({ description, schema: { type } });
const HEADERS = {
  ETag: header('The entity tag of this revision. All views of the revision have the same tag.'),
  Location: header('Path of what was created.'),
  'Weir-Generation': header('The generation of the active policy.', 'integer'),
  'Weir-Revision': header('The revision of etcd that contains the write. Only in a cluster.', 'integer'),
  'Weir-Nodes': header(
    'The members of the cluster that staged the policy before the commit, of all members, such as `3/3`. Only after a rehearsal.',
  ),
  'Weir-Warnings': header('The codes of warnings, if the body has no member `warnings`.'),
  'WWW-Authenticate': header('The required credentials.'),
  'Retry-After': header('Seconds to wait.', 'integer'),
};

const DESCRIPTIONS: Readonly<Record<string, string>> = {
  101: 'Switching protocols.',
  200: 'Done.',
  201: 'Created.',
  204: 'Done; no body.',
  304: 'Unchanged.',
};

/**
 * Adds the required role and the request headers to the OpenAPI description of a request. The role follows
 * from the access of the route. The precondition headers follow from the statuses of its responses.
 */
export function describeRequest(route: RouteOptions, { schema, url }: Transformed): Transformed {
  const access = route.config?.access?.management ?? 'write';
  const isOpen = access === 'public' || access === 'sign_in';
  const answers = Object.keys((schema.response as object | undefined) ?? {});
  const headers = {
    ...preconditions(answers),
    ...(route.method === 'GET' && access === 'read' ? { 'weir-min-generation': MIN_GENERATION } : {}),
  };
  return {
    url,
    schema: {
      ...schema,
      security: isOpen ? [] : [{ bearer: [] }, { session: [] }],
      // The security of a route that authenticates the client itself is in its schema.
      ...(schema.security === undefined ? {} : { security: schema.security }),
      ...(Object.keys(headers).length === 0 ? {} : { headers: { type: 'object', properties: headers } }),
      ...(isOpen ? {} : { 'x-weir-role': access === 'write' ? 'admin' : 'readonly' }),
    },
  };
}

/**
 * Adds descriptions and headers of responses to the OpenAPI document. The generator cannot add them, because
 * the schemas of the routes describe only response bodies.
 */
export function describeAnswers<D extends object>(document: D): D {
  const paths = (document as { readonly paths?: Readonly<Record<string, Record<string, Operation>>> }).paths ?? {};
  for (const [path, operations] of Object.entries(paths)) {
    for (const { responses } of Object.values(operations)) {
      for (const [status, answer] of Object.entries(responses)) {
        if (answer.description === 'Default Response') answer.description = DESCRIPTIONS[status] ?? 'Answer.';
        const headers = headersOf(path, status, Object.keys(responses));
        if (headers.length > 0) answer.headers = Object.fromEntries(headers.map((name) => [name, HEADERS[name]]));
      }
    }
  }
  return document;
}

function preconditions(answers: readonly string[]): Readonly<Record<string, unknown>> {
  if (answers.includes('412')) return { 'if-match': IF_MATCH, 'if-none-match': IF_NONE_MATCH };
  return answers.includes('304') ? { 'if-none-match': UNLESS } : {};
}

function headersOf(path: string, status: string, answers: readonly string[]): (keyof typeof HEADERS)[] {
  if (status === '401' || status === '403') return ['WWW-Authenticate'];
  if (status === '429' || status === '503') return ['Retry-After'];
  if (!status.startsWith('2')) return [];
  const names: (keyof typeof HEADERS)[] = [];
  if (status !== '204' && (answers.includes('304') || answers.includes('412'))) names.push('ETag');
  if (status === '201' && answers.includes('409')) names.push('Location');
  if (/^[/]api[/]v1[/]polic(y|ies)(?![/](explain|hits))/.test(path)) {
    names.push('Weir-Generation', 'Weir-Warnings');
    if (answers.includes('409')) names.push('Weir-Revision', 'Weir-Nodes');
  }
  return names;
}
