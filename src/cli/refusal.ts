import { z } from 'zod';
import { ERRORS } from '#api/errors.js';
import { RefusedError } from './error.js';

const problemSchema = z.object({
  type: z.string().optional().catch(undefined),
  error: z.string().min(1),
  problems: z
    .array(z.object({ pointer: z.string(), code: z.string(), message: z.string() }))
    .optional()
    .catch(undefined),
});

/** What to do about it in the words of this command, where HTTP's would not help. */
const FIXES: Readonly<Record<string, string>> = {
  unauthenticated: 'give a token with --token-file or WEIR_TOKEN',
  invalid_token: 'give another token with --token-file or WEIR_TOKEN; `weir token create` makes one',
  forbidden: 'give the token of an admin with --token-file or WEIR_TOKEN',
  performance_mode_disabled: 'run `weir performance-mode on` first',
  precondition_failed: 'read it again with `weir policy get`, bring the change over, and give its new ETag',
  invalid_ca: 'correct what is named above; `openssl x509 -text` and `openssl pkey -text` show what the files hold',
  not_found: '`weir policy list` shows what there is',
};

/** Problem details carry one plain sentence in `error` (D28), and the code of the error in `type`. */
export function refusalOf(status: number, text: string): RefusedError {
  let parsed: z.infer<typeof problemSchema> | undefined;
  try {
    parsed = problemSchema.safeParse(JSON.parse(text)).data;
  } catch {
    // Whatever stands between here and the node answered with something of its own.
  }
  if (parsed === undefined)
    return new RefusedError(`the server answered with ${status}`, status, undefined, [], undefined);
  const code = parsed.type?.split(':').at(-1);
  return new RefusedError(parsed.error, status, code, parsed.problems ?? [], fixOf(code));
}

function fixOf(code: string | undefined): string | undefined {
  if (code === undefined || !Object.hasOwn(ERRORS, code)) return undefined;
  return FIXES[code] ?? ERRORS[code as keyof typeof ERRORS].remedy;
}
