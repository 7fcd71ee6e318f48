import { z } from 'zod';

const text = z.string().max(1_000_000);

/** The settings and credentials of etcd with which a node joins the cluster. */
export const AccessSchema = z.object({
  prefix: text,
  endpoints: z.array(text),
  tls: z.object({ ca: text, cert: text, key: text }).nullable(),
  user: z.object({ name: text, password: text }).nullable(),
  seal_key: text.nullable(),
});
