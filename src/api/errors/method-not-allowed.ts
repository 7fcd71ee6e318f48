import type { FastifyRequest } from 'fastify';
import type { Api, Listener } from '#api/api.js';
import { ApiError } from './errors.js';

const PATHS: Readonly<Record<Listener, string>> = {
  management: 'the paths are in /openapi/service-v1.json, and /ready reports the state of the node',
  peers: 'this is the listener for other nodes; use the management API',
  metrics: 'this listener has only /metrics, /health and /ready; the management API is at `api.listen`',
};

/**
 * Returns a handler that distinguishes 405 (wrong method) from 404 (no such path at this listener). Must be
 * called before the routes are registered, and after the hook that sets their `access`, because a hook
 * collects the routes.
 */
export function createNotFound(api: Api, listener: Listener): (request: FastifyRequest) => never {
  const methods = new Map<string, Set<string>>();
  api.addHook('onRoute', ({ url, method, config }) => {
    if (config?.access?.[listener] === undefined) return;
    const known = methods.get(url) ?? new Set<string>();
    for (const name of [method].flat()) known.add(name);
    methods.set(url, known);
  });
  return ({ url, method }) => {
    const path = url.split('?', 1)[0] ?? '';
    const allowedAt = (wanted: string) =>
      new Set([...methods].flatMap(([pattern, known]) => (isLike(wanted, pattern) ? [...known] : [])));
    const allowed = allowedAt(path);
    if (allowed.size === 0) {
      const shorter = path.replace(/\/+$/, '');
      const hint =
        shorter !== path && allowedAt(shorter).size > 0
          ? `write it without the slash at its end: ${shown(shorter)}`
          : PATHS[listener];
      throw new ApiError('no_such_path', `${shown(path)} is not a path of this API; ${hint}`);
    }
    const allow = [...allowed].sort().join(', ');
    throw new ApiError('method_not_allowed', `${method} is not allowed for this path; allowed: ${allow}`, [], {
      allow,
    });
  };
}

function isLike(path: string, pattern: string): boolean {
  const steps = path.split('/');
  const wanted = pattern.split('/');
  return (
    steps.length === wanted.length &&
    wanted.every((step, index) => (step.startsWith(':') ? steps[index] !== '' : step === steps[index]))
  );
}

const shown = (path: string) => (path.length > 200 ? `${path.slice(0, 200)}…` : path);
