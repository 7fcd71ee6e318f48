import { z } from 'zod';

/** A packet that an answer shows, in the form of an explain request. */
export const ShownPacketSchema = z.object({
  src: z.string(),
  dst: z.string(),
  proto: z.int(),
  src_port: z.int().optional(),
  dst_port: z.int().optional(),
  icmp_type: z.int().optional(),
  icmp_code: z.int().optional(),
});
