import { compile } from '#policy/compile.js';
import type { Policy } from '#policy/model.js';
import type { Program } from '#policy/program.js';

/** A policy that is only its default. */
export function defaultOnly(action: 'allow' | 'deny', mode: 'audit' | 'enforce' = 'enforce'): Policy {
  return { groups: [], default: { action, mode, from: 'default_policy' } };
}

export const allowAll: Program = compile(defaultOnly('allow'));
export const denyAll: Program = compile(defaultOnly('deny'));
export const auditAll: Program = compile(defaultOnly('deny', 'audit'));
