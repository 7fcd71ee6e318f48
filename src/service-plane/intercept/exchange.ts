import type { RequestFacts, ResponseFacts } from '#contracts/service-plane/http-facts.js';
import type { Decided, Step } from '#policy/evaluate/connection/connection-steps.js';
import { violatedMatcher } from '#policy/evaluate/connection/http-block.js';
import { FAULT_STATUS, type HttpFault } from '../http/fault.js';
import type { Problem } from './answer.js';
import type { SessionPorts } from './session-ports.js';

/**
 * Evaluates a final or interim response, and reports a response that violates its rule. Returns the problem
 * response that the client receives in place of the response; null if the response is forwarded.
 */
export function decideResponse(
  { tellBroken }: Pick<SessionPorts, 'tellBroken'>,
  request: RequestFacts,
  step: Step,
  response: ResponseFacts,
): Problem | null {
  const broken = violatedMatcher(step.tls?.http?.response, response);
  if (broken === null) return null;
  tellBroken(request, step, broken);
  if (step.mode === 'audit') return null;
  const detail = `The response violates ${broken} of the rule that allowed the request.`;
  return { status: 502, detail, rule: step.decider };
}

/**
 * Returns true if the trailers of a message may be forwarded. Header matchers of a rule would also apply to
 * trailers, but trailers arrive after the evaluation. So the session drops request trailers if the rule has
 * request header matchers, and response trailers if the rule has response matchers.
 */
export function mayTrail(step: Step, side: 'request' | 'response'): boolean {
  const http = step.tls?.http;
  return side === 'request' ? http?.request?.headers === undefined : http?.response === undefined;
}

export function deniedProblem({ step, reason }: Pick<Decided, 'step' | 'reason'>): Problem {
  const by = PATH_DETAILS[reason] ?? '';
  return { status: 403, detail: `The policy does not allow this request${by}.`, rule: step.decider };
}

const PATH_DETAILS: Partial<Record<Decided['reason'], string>> = {
  path_normalised: ' because of the normalised form of its path',
  path_decoded: ' because of the decoded form of its path',
  path_unreadable: ' because servers read its path in different ways',
};

export function faultProblem(fault: HttpFault): Problem {
  return { status: FAULT_STATUS[fault], detail: `The request is refused: ${fault.replaceAll('_', ' ')}.` };
}

export const NO_HTTP: Problem = { status: 502, detail: 'The server sent an invalid HTTP response.' };
export const SERVER_CLOSED: Problem = {
  status: 502,
  detail: 'The server closed the connection before it answered.',
};
export const TIMED_OUT: Problem = { status: 504, detail: 'The server did not answer in time.' };
