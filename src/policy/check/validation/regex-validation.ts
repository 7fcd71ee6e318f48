import { LIMITS } from '#policy/document/limits.js';
import { type CompiledRegex, compileRegex, type RegexOptions } from '#policy/model/names/regex.js';
import type { Validation } from './validation-context.js';

/**
 * Compiles a regular expression of a policy, and reports its problems (D13). After the policy has exceeded
 * its total instruction limit, returns null without compiling: many large expressions would take minutes. The
 * limits do not apply to a stored policy.
 */
export function validateExpression(
  source: string,
  at: string,
  { problems, context, expressions }: Validation,
  options: RegexOptions = {},
): CompiledRegex | null {
  if (isOverPolicy(expressions.instructions) && context.isStored !== true) return null;
  const compiled = compileRegex(source, options);
  if (!compiled.ok) {
    problems.add(at, compiled.code, `Invalid regular expression: ${compiled.fault}.`);
    return compiled;
  }
  expressions.instructions += compiled.instructions;
  if (compiled.instructions > LIMITS.regexInstructions && context.isStored !== true) {
    const message = `This regular expression compiles to ${compiled.instructions} instructions; ${LIMITS.regexInstructions} are allowed. Use smaller repetitions or an exact list.`;
    problems.add(at, 'regex_too_large', message);
  }
  return compiled;
}

export function isOverPolicy(instructions: number): boolean {
  return instructions > LIMITS.policyInstructions;
}

export const TOO_MANY_INSTRUCTIONS = `All regular expressions of a policy together may have at most ${LIMITS.policyInstructions} instructions: use exact lists, or fewer expressions.`;
