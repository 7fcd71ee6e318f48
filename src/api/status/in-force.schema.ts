import { z } from 'zod';
import { instant } from '#api/openapi/answer.schema.js';

export const inForceGeneration = z
  .int()
  .min(1)
  .nullable()
  .describe(
    'The generation that the kernel enforces. Null if it enforces none, or if the node has not opened the datapath yet, or has lost it.',
  );

export const inForceSince = instant
  .nullable()
  .describe(
    'The time since when the kernel enforces the generation in force. A restart of the node does not change it. Null if nothing is in force, if the node has not opened the datapath yet, or if an earlier build of Weir activated the generation.',
  );
