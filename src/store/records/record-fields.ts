import { z } from 'zod';

export const text = z.string();
export const id = z.string().min(1);
export const count = z.int().min(0);
export const instant = z.string().refine((value) => !Number.isNaN(Date.parse(value)), 'it is no time');

/** The fields of a stored policy that a record and a proposal (policy write before its commit) share. */
export const policyFields = {
  id,
  name: text.nullable(),
  form: z.enum(['envelope', 'singleton']),
  mode: z.enum(['disabled', 'audit', 'enforce']),
  revision: count,
  created_at: instant,
  updated_at: instant,
  updated_by: text,
};
