import { z } from 'zod';

/**
 * The schema of the member `source_groups` of flows and findings. `when`: the time for which the member is
 * valid. A node with an older build omits the member.
 */
export const sourceGroupsOf = (when: string) =>
  z
    .array(z.string())
    .nullable()
    .default(null)
    .describe(
      `If the default of the policy decided: the ids of the groups whose sources contained the source ${when}, the first 16 in the order of evaluation. ` +
        'Null if something else decided, or if the groups are not known: the policy has Kubernetes selectors, and a Kubernetes object owns the source.',
    );
