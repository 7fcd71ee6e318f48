import type { Socket } from 'node:net';
import rateLimit from '@fastify/rate-limit';
import Fastify, {
  type FastifyInstance,
  type FastifyRequest,
  type FastifyServerOptions,
  LogController,
  type RouteOptions,
} from 'fastify';
import { serializerCompiler } from 'fastify-type-provider-zod';
import { keepAuditTrail } from '#api/access/audit-trail.js';
import { authenticate, authenticatePeer, checkRole, isStillAllowed } from '#api/access/authentication.js';
import { sessionResource } from '#api/access/session.route.js';
import { tokensResource } from '#api/access/tokens.route.js';
import { analysisResource } from '#api/analysis/analysis.route.js';
import { clusterResource, joinResource } from '#api/cluster/cluster.route.js';
import { clusterNodesResource } from '#api/cluster/cluster-nodes.route.js';
import { answerClientError, answerProblem } from '#api/connections/client-error.js';
import { closeSilentConnections, endAfter } from '#api/connections/closing-connections.js';
import { isOwnConnection } from '#api/connections/own-connection.js';
import { UpgradeRequest } from '#api/connections/upgrade-requests.js';
import { registerWebSockets } from '#api/connections/websocket.js';
import { consoleResource } from '#api/console/console.route.js';
import { answerError } from '#api/errors/error-answer.js';
import { ApiError } from '#api/errors/errors.js';
import { createNotFound } from '#api/errors/method-not-allowed.js';
import { auditResource } from '#api/findings/audit.route.js';
import { integrationStatusResource } from '#api/kubernetes/integration-status.route.js';
import { integrationsResource } from '#api/kubernetes/integrations.route.js';
import { openapiResource } from '#api/openapi/openapi.route.js';
import { assertionsResource } from '#api/policies/assertions.route.js';
import { explainResource } from '#api/policies/explain.route.js';
import { awaitMinGeneration, tellEnforcedInstead } from '#api/policies/generation-headers.js';
import { groupMembersResource } from '#api/policies/group-members.route.js';
import { historyResource } from '#api/policies/history.route.js';
import { pendingChangeResource } from '#api/policies/pending-change.route.js';
import { policiesResource } from '#api/policies/policies.route.js';
import { policyResource } from '#api/policies/policy.route.js';
import { sourceGroupsResource } from '#api/policies/source-groups.route.js';
import { BodyBudget, endBody, startBodyDeadline } from '#api/requests/body-limits.js';
import { isDryRun } from '#api/requests/query-parameters.js';
import { parseQuery } from '#api/requests/query-string.js';
import { readBody } from '#api/requests/request-body.js';
import { checkHeaders, checkHost, checkOrigin, checkQuery, checkTarget, hostSet } from '#api/requests/request-guard.js';
import { configReloadResource } from '#api/settings/config-reload.route.js';
import { performanceModeResource } from '#api/settings/performance-mode.route.js';
import { tlsInterceptCaResource } from '#api/settings/tls-intercept-ca.route.js';
import { debugResource } from '#api/status/debug.route.js';
import { dnsCacheResource } from '#api/status/dns-cache.route.js';
import { nodeResource } from '#api/status/node.route.js';
import { healthResource, readinessResource } from '#api/status/readiness.route.js';
import { metricsResource, statsResource } from '#api/status/stats.route.js';
import { statsSeriesResource } from '#api/status/stats-series.route.js';
import { sysdumpResource } from '#api/status/sysdump.route.js';
import { flowsResource } from '#api/traffic/flows.route.js';
import { hitsResource } from '#api/traffic/hits.route.js';
import { seenFlowsResource } from '#api/traffic/seen-flows.route.js';
import { wiretapResource } from '#api/traffic/wiretap.route.js';
import type { TokenIdentity } from '#store/tokens/token-verdict.js';
import type { Access, Api, Listener, Resource } from './api.js';
import { type ApiLimits, type ApiOptions, type ApiSettings, DEFAULT_LIMITS } from './api-options.js';
import type { Management } from './management.js';
import { SECURITY_HEADERS } from './security-headers.js';

/** The key under which Fastify reads the name of a plugin. */
const DISPLAY_NAME = Symbol.for('fastify.display-name');

/**
 * The resources that each listener registers. A listener gets only the routes whose `access` contains the
 * listener.
 */
const RESOURCES: Readonly<Record<Listener, readonly Resource[]>> = {
  management: [
    healthResource,
    readinessResource,
    metricsResource,
    nodeResource,
    statsResource,
    statsSeriesResource,
    policyResource,
    pendingChangeResource,
    hitsResource,
    explainResource,
    analysisResource,
    policiesResource,
    historyResource,
    sourceGroupsResource,
    groupMembersResource,
    assertionsResource,
    performanceModeResource,
    configReloadResource,
    tlsInterceptCaResource,
    integrationsResource,
    integrationStatusResource,
    clusterResource,
    clusterNodesResource,
    tokensResource,
    sessionResource,
    flowsResource,
    seenFlowsResource,
    dnsCacheResource,
    auditResource,
    wiretapResource,
    sysdumpResource,
    debugResource,
  ],
  peers: [
    joinResource,
    readinessResource,
    hitsResource,
    flowsResource,
    auditResource,
    wiretapResource,
    sysdumpResource,
  ],
  metrics: [healthResource, readinessResource, metricsResource],
};

const JSON_TYPE = /^application\/json\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?$/i;

/**
 * Creates a server of a node: by default the management API, see `ApiOptions.listener`. The returned server
 * does not listen yet, but its method `inject` already works.
 */
export async function createApi(management: Management, options: ApiOptions): Promise<Api> {
  const { listener = 'management' } = options;
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const api = Fastify(serverOptions(options, limits)) as unknown as Api;
  api.server.maxConnections = limits.connections;
  const { refuses = () => false } = options;
  api.server.prependListener('connection', (socket) => {
    if (!refuses(socket)) return;
    management.metrics.refusedConnection();
    socket.destroy();
  });
  api.server.on('drop', () => management.metrics.refusedConnection());
  // Node.js drops headers above `maxHeadersCount`. Its limit is one higher, so that `checkHeaders` gets the
  // first surplus header and refuses the request.
  api.server.maxHeadersCount = limits.headerCount + 1;

  endAfter(api.server, limits.requestsPerSocket);
  closeSilentConnections(api, options.tls !== undefined);
  // Ignore unknown expectations (RFC 9110, 10.1.1), because Node.js would refuse them without a problem
  // document.
  api.server.on('checkExpectation', (request, response) => api.server.emit('request', request, response));
  api.server.on('connect', (_request, socket) => answerProblem(socket as Socket, new ApiError('method_not_allowed')));

  api.setValidatorCompiler(readBody);
  api.setSerializerCompiler(serializerCompiler);
  api.setErrorHandler(answerError);
  readJsonOnly(api);
  api.addHook('onRoute', (route) => {
    const access = route.config?.access ?? { management: defaultAccess(route) };
    route.config = { ...route.config, access };
    if (route.config.policyBody === true) route.bodyLimit = limits.policyBodyBytes;
  });
  const notFound = createNotFound(api, listener);
  api.setNotFoundHandler(notFound);
  await api.register(rateLimit, { global: false });
  guard(api, management, options, limits, notFound);
  keepAuditTrail(api, management);
  awaitMinGeneration(api, management);
  tellEnforcedInstead(api, management);
  await registerWebSockets(api);
  if (listener === 'management') await api.register(openapiResource(options.version));
  if (listener === 'management' && options.console != null) consoleResource(options.console)(api);
  for (const resource of RESOURCES[listener]) {
    const plugin = async (scope: FastifyInstance): Promise<void> => resource(scope, management);
    // Fastify would compare a plugin without a name with every loaded CommonJS module.
    await api.register(Object.assign(plugin, { [DISPLAY_NAME]: resource.name }));
  }
  return api;
}

function serverOptions(options: ApiOptions, limits: ApiLimits): FastifyServerOptions {
  const server = {
    headersTimeout: limits.headersTimeoutMs,
    connectionsCheckingInterval: limits.connectionsCheckingIntervalMs,
    maxHeaderSize: limits.headerBytes,
    // `checkHost` refuses a request without `Host` with a problem document. Node.js would refuse it without
    // one.
    requireHostHeader: false,
    IncomingMessage: UpgradeRequest,
  };
  const common: FastifyServerOptions = {
    ...(options.logger === undefined ? {} : { loggerInstance: options.logger }),
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: limits.bodyBytes,
    requestTimeout: Math.max(limits.policyRequestTimeoutMs, limits.headersTimeoutMs),
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    // Close the connections of the metrics listener at once, so that they do not delay the stop of the node.
    // Scrapers repeat their requests.
    forceCloseConnections: options.listener === 'metrics' ? true : 'idle',
    return503OnClosing: false,
    routerOptions: { maxParamLength: 512, querystringParser: parseQuery },
    clientErrorHandler: answerClientError,
    frameworkErrors: (error, request, reply) => {
      void answerError(error, request, reply);
    },
  };
  const { tls, listener } = options;
  if (tls === undefined) return { ...common, http: server } as unknown as FastifyServerOptions;
  // Accept certificates of any CA here, because `authenticatePeer` compares the fingerprint.
  const peers = { minVersion: 'TLSv1.3', requestCert: true, rejectUnauthorized: false };
  const clients = listener === 'peers' ? peers : { minVersion: 'TLSv1.2' };
  const { ca, ...own } = tls;
  return {
    ...common,
    https: { ...server, ...own, ...(ca == null ? {} : { ca }), ...clients },
  } as unknown as FastifyServerOptions;
}

const isResolved = (promise: Promise<unknown>): Promise<boolean> =>
  promise.then(
    () => true,
    () => false,
  );

function readJsonOnly(api: Api): void {
  api.removeAllContentTypeParsers();
  api.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, bytes, done) => {
    const encoding = request.headers['content-encoding'] ?? 'identity';
    const plain = JSON_TYPE.test(request.headers['content-type'] ?? '') && encoding === 'identity';
    if (plain) done(null, bytes);
    else done(new ApiError('unsupported_media_type'));
  });
}

/**
 * Returns the default access of a route: a valid token for GET and HEAD, and the role `admin` for all other
 * methods.
 */
function defaultAccess(route: RouteOptions): Access {
  return [route.method].flat().every((method) => method === 'GET' || method === 'HEAD') ? 'read' : 'write';
}

/**
 * Returns a function that counts a request for its client address. The function returns how many seconds the
 * client must wait after too many requests in the window; otherwise null.
 */
function counter(api: Api, max: () => number, timeWindow: number): (request: FastifyRequest) => Promise<number | null> {
  const count = api.createRateLimit({ max, timeWindow });
  return async (request) => {
    const counted = await count(request);
    return !counted.isAllowed && counted.isExceeded ? counted.ttlInSeconds : null;
  };
}

function guard(
  api: Api,
  management: Management,
  options: ApiOptions,
  limits: ApiLimits,
  notFound: (request: FastifyRequest) => never,
): void {
  const { listener = 'management' } = options;
  const settings = options.settings ?? ((): ApiSettings => ({ ...limits, hosts: options.hosts ?? [] }));
  const budget = new BodyBudget(limits.policyBytesInFlight, limits.policyBodyBytes);
  const countRequest = counter(api, () => settings().requestsPerWindow, limits.requestWindowMs);
  // Do not count requests of this node at the metrics listener: a local process could use up the limit of
  // the kubelet, whose probes have the same address.
  const isCounted = ({ socket }: FastifyRequest): boolean =>
    listener !== 'peers' && !(listener === 'metrics' && isOwnConnection(socket));
  const countFailedLogin = counter(api, () => settings().failedLoginsPerWindow, limits.failedLoginWindowMs);

  const identify = async (request: FastifyRequest): Promise<TokenIdentity> => {
    if (listener !== 'peers') {
      request.isStillAllowed = () => isStillAllowed(request, management);
      return authenticate(request, management);
    }
    const caller = () => authenticatePeer(request, management.peers, options.tls?.ca != null);
    request.isStillAllowed = () => isResolved(caller());
    return caller();
  };

  api.decorateRequest('caller', null);
  api.decorateRequest('session', null);
  api.decorateRequest('access', null);
  api.decorateRequest('isStillAllowed', async () => false);
  api.decorateRequest('refuseLogin', async function (this: FastifyRequest, refusal: ApiError): Promise<never> {
    const waitSeconds = await countFailedLogin(this);
    if (waitSeconds === null) throw refusal;
    throw new ApiError('too_many_failed_logins', undefined, [], { 'retry-after': String(waitSeconds) });
  });
  api.addHook('onRequest', async (request, reply) => {
    checkTarget(request);
    checkHeaders(request, limits.headerCount);
    // Scrapers and probes use host names that are not in the configuration.
    checkHost(request, listener === 'metrics' ? 'any' : hostSet(settings().hosts));
    checkOrigin(request);
    checkQuery(request);
    const { access: accesses = {}, policyBody = false } = request.routeOptions.config;
    const access = request.is404 ? null : (accesses[listener] ?? null);
    request.access = access;
    if (access === 'public' && listener !== 'metrics') return;
    const waitSeconds = isCounted(request) ? await countRequest(request) : null;
    if (waitSeconds !== null) throw new ApiError('rate_limited', undefined, [], { 'retry-after': String(waitSeconds) });
    // Respond with 404 before Fastify reads the body. Otherwise Fastify would send another error for a
    // request with the method QUERY and no content type.
    if (access === null) return notFound(request);
    if (access === 'public') return;
    // A query from another node must concern only this node, because this node must not query further nodes.
    if (listener === 'peers' && (request.query as { readonly scope?: unknown }).scope === 'cluster')
      throw new ApiError('invalid_query', '?scope: the peer listener returns only the data of this node');
    if (access !== 'sign_in') {
      request.caller = await identify(request);
      checkRole(request.caller, access, isDryRun(request));
    }
    if (policyBody) budget.reserve(request, reply);
    startBodyDeadline(request, reply, policyBody ? limits.policyRequestTimeoutMs : settings().requestTimeoutMs);
  });
  api.addHook('onSend', async (_request, reply) => {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) if (!reply.hasHeader(name)) reply.header(name, value);
    if (!reply.hasHeader('cache-control')) reply.header('cache-control', 'no-store');
  });
  api.addHook('onResponse', async (request, reply) => {
    endBody(request, limits.lingerMs);
    management.metrics.served({
      method: request.method,
      route: request.routeOptions.url ?? 'none',
      status: reply.statusCode,
      seconds: reply.elapsedTime / 1000,
    });
    request.log.debug(
      { method: request.method, route: request.routeOptions.url, status: reply.statusCode, ms: reply.elapsedTime },
      'answered',
    );
  });
}
