import { instant } from '#api/openapi/answer.schema.js';

export const inForceSince = instant
  .nullable()
  .describe(
    'The time since when the kernel enforces the generation in force. A restart of the node does not change it. Null if nothing is in force, if the node has not opened the datapath yet, or if an earlier build of Weir activated the generation.',
  );
