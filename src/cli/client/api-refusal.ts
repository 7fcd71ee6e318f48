import { z } from 'zod';
import { ERRORS } from '#api/errors/error-table.js';
import { AssertionsFailedError, type Problem, RefusedError } from '#cli/errors/command-error.js';
import type { AssertionFailure } from '#contracts/analysis/assertion.js';
import { brokenText, overrideAdvice } from './broken-assertions.js';

const problemSchema = z.object({
  type: z.string().optional().catch(undefined),
  error: z.string().min(1),
  problems: z
    .array(z.object({ pointer: z.string(), code: z.string(), message: z.string() }))
    .optional()
    .catch(undefined),
  assertions: z
    .array(z.looseObject({ id: z.string(), message: z.string(), regions: z.array(z.looseObject({})) }))
    .optional()
    .catch(undefined),
});

/**
 * Advice for users of `weir`, by error code. This advice replaces the advice of the API where the API's
 * advice is about HTTP.
 */
const FIXES: Readonly<Record<string, string>> = {
  malformed_request: 'check that --server names a Weir node, and that no proxy changes the request',
  invalid_url: 'correct the name or the id',
  invalid_query: 'correct the flags in the message; --help of the command shows the valid values',
  invalid_header: 'give --if-match as `weir policy get` shows the ETag',
  invalid_body: 'correct the file at the place in the message',
  invalid_request: 'correct the value in the message; --help of the command shows the valid values',
  invalid_policy: 'correct everything that the message lists; the list is complete',
  token_in_query: 'give the token with --token-file or WEIR_TOKEN, and revoke the token that was sent',
  unauthenticated: 'give a token with --token-file or WEIR_TOKEN',
  invalid_token: 'give another token with --token-file or WEIR_TOKEN; `weir token create` makes one',
  forbidden: 'give the token of an admin with --token-file or WEIR_TOKEN',
  host_refused: 'give --server with the address that the node listens on, or add the name to `api.allowed_hosts`',
  origin_refused: 'give --server with the address that the node listens on',
  no_such_path:
    'use the `weir` command of the same version as the node; `weir --version` shows the version of this command',
  method_not_allowed:
    'use the `weir` command of the same version as the node; `weir --version` shows the version of this command',
  unsupported_media_type: 'check that no proxy changes the requests to the node',
  upgrade_needed:
    'use the `weir` command of the same version as the node; `weir --version` shows the version of this command',
  performance_mode_disabled: 'run `weir performance-mode on` first',
  precondition_failed: 'read the policy again with `weir policy get`, repeat the change, and give the new ETag',
  invalid_ca:
    'correct the files as the message says; `openssl x509 -text` and `openssl pkey -text` show the content of the files',
  not_found: '`weir policy list` shows the stored policies',
  name_taken: 'give another --name; `weir policy list` shows the names',
  would_unpolice:
    'correct dataplane.interfaces in the file on the node, or give --allow-unpoliced if the interface must be open',
  would_open: 'write a policy whose default denies, or give --allow-open if IPv6 must be open',
  already_exists: 'give --replace',
  integration_read_only: 'give another name, or change `kubernetes.in_cluster` in the configuration of the node',
  policy_not_active: 'name a source group of the active policy',
  would_deactivate: 'omit --no-activate, or store the policy under another --name',
  cannot_activate: 'write the policy with `weir policy apply` in the mode audit or enforce',
  capacity_exceeded: 'make the policy smaller; the message names the table, the need and the limit',
  url_too_long: 'give a shorter name or id',
  headers_too_large: 'give a shorter token or ETag',
  rate_limited: 'wait a minute, then try again',
  too_many_failed_logins: 'wait a few minutes, then try again with a valid token',
  overloaded: 'try again in a few seconds',
  invalid_config: 'correct the file on the node, and reload again; nothing was changed',
  reload_failed: 'correct the cause in the message, and reload again; `weir status` shows the last reload',
  assertion_failed: 'change the policy, or give --override with the ids of the assertions',
  member_refused: 'correct the policy, or give --no-rehearse; that node then keeps its present policy',
  activation_timeout: 'try again; `weir status` shows the checks of the node',
  dataplane_unavailable: 'try again once `weir status` shows the node ready',
  feature_unavailable: 'configure the part; `weir status` shows the checks of the node',
  proof_failed:
    'this is a bug of Weir: report it with the policy, the packet in the message, and the output of `weir sysdump`',
};

/** Maps query parameters and body members to the flag that sets them, where the names of both differ. */
const OTHER_FLAGS: Readonly<Record<string, string>> = {
  finding_type: '--type',
  source_group: '--group',
  policy_id: '--policy',
  activate: '--no-activate',
  cert_pem: '--cert',
  key_pem: '--key',
};
/** The members of a request body that are set by flags. All other members come from a file. */
const SET_BY_FLAGS = [
  ...['subject', 'role', 'expires_in', 'cert_pem', 'key_pem'],
  ...['src', 'dst', 'proto', 'src_port', 'dst_port', 'icmp_type', 'icmp_code', 'hostname', 'sni', 'query'],
];
/** Query parameters that a command sets itself, so that the user cannot correct them. */
const OWN = ['?cursor'];

const flagNamed = (name: string): string => OTHER_FLAGS[name] ?? `--${name.replaceAll('_', '-')}`;

/**
 * Converts an error response of the API to a `RefusedError`. The response contains problem details: a
 * sentence in `error` (D28), and the error code at the end of `type`.
 */
export function refusalOf(status: number, text: string): RefusedError {
  let parsed: z.infer<typeof problemSchema> | undefined;
  try {
    parsed = problemSchema.safeParse(JSON.parse(text)).data;
  } catch {
    // The text is not JSON: probably a proxy between this command and the node sent the response.
  }
  if (parsed === undefined)
    return new RefusedError(`the server answered with ${status}`, status, undefined, [], undefined);
  const code = parsed.type?.split(':').at(-1);
  const problems = (parsed.problems ?? []).map(inFlags);
  // Exit with the code for wrong usage if the node detects a wrong value of a flag.
  const { assertions } = parsed;
  if (assertions !== undefined && assertions.length > 0) {
    const failures = assertions as unknown as readonly AssertionFailure[];
    return new AssertionsFailedError(brokenText(failures), failures, { status, code, fix: overrideAdvice(failures) });
  }
  const isUsage = status === 400 && problems.length > 0 && problems.every(({ pointer }) => pointer.startsWith('--'));
  return new RefusedError(sentenceOf(parsed.error, problems), status, code, problems, adviceOn(code), isUsage ? 2 : 1);
}

/** Replaces the name of a query parameter or body member in an API problem with the flag that sets it. */
function inFlags({ pointer, code, message }: Problem): Problem {
  if (!pointer.startsWith('?')) {
    const member = /^\/(?<name>[a-z_]+)$/.exec(pointer)?.groups?.name;
    return {
      pointer: member !== undefined && SET_BY_FLAGS.includes(member) ? flagNamed(member) : pointer,
      code,
      message,
    };
  }
  const worded = message
    .replace(/\bparameter "([a-z_]+)"/g, (_, name: string) => `flag ${flagNamed(name)}`)
    .replace(/\b([a-z_]+)=true\b/g, (_, name: string) => flagNamed(name))
    .replace(/\bparameter(s?)\b/g, 'flag$1');
  return { pointer: OWN.includes(pointer) ? '' : flagNamed(pointer.slice(1)), code, message: worded };
}

/**
 * Returns the error message: the sentence from the node, or a list if there are several problems. If the only
 * problem concerns a flag, the message names this flag instead of the query parameter.
 */
function sentenceOf(error: string, problems: readonly Problem[]): string {
  const [first, ...others] = problems;
  if (first === undefined) return error;
  const lines = problems.map(({ pointer, message }) => (pointer === '' ? message : `${pointer}: ${message}`));
  if (others.length > 0) return [`${problems.length} problems:`, ...lines.map((line) => `  ${line}`)].join('\n');
  return first.pointer.startsWith('/') ? error : (lines[0] ?? error);
}

/** Returns the advice for an error code of the API; undefined for other codes. */
export function adviceOn(code: string | undefined): string | undefined {
  if (code === undefined || !Object.hasOwn(ERRORS, code)) return undefined;
  return FIXES[code] ?? ERRORS[code as keyof typeof ERRORS].remedy;
}
