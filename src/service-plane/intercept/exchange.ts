import type { RequestFacts, ResponseFacts } from '#contracts/http-facts.js';
import type { Step } from '#policy/evaluate/connection-steps.js';
import { breaksResponse } from '#policy/evaluate/http-block.js';
import { FAULT_STATUS, type HttpFault } from '../http/fault.js';
import type { Problem } from './answer.js';
import type { SessionPorts } from './session-ports.js';

/** What stops a response, or an interim one; told where it breaks the rule. Null: it goes on. */
export function judgeResponse(
  { tellBroken }: Pick<SessionPorts, 'tellBroken'>,
  request: RequestFacts,
  step: Step,
  response: ResponseFacts,
): Problem | null {
  const broken = breaksResponse(step.tls?.http?.response, response);
  if (broken === null) return null;
  tellBroken(request, step, broken);
  if (step.mode === 'audit') return null;
  const detail = `The response breaks ${broken} of the rule that let the request pass.`;
  return { status: 502, detail, rule: step.decider };
}

/** What a rule says of headers it says of trailers, which come too late for it: then they do not go on. */
export function mayTrail(step: Step, side: 'request' | 'response'): boolean {
  const http = step.tls?.http;
  return side === 'request' ? http?.request?.headers === undefined : http?.response === undefined;
}

export function deniedProblem(step: Step): Problem {
  return { status: 403, detail: 'The policy does not allow this request.', rule: step.decider };
}

export function faultProblem(fault: HttpFault): Problem {
  return { status: FAULT_STATUS[fault], detail: `The request is refused: ${fault.replaceAll('_', ' ')}.` };
}

export const NO_HTTP: Problem = { status: 502, detail: 'The server does not speak HTTP as it must.' };
export const SERVER_CLOSED: Problem = {
  status: 502,
  detail: 'The server closed the connection before it answered.',
};
