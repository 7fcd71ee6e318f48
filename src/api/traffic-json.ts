import type { Refusal } from '#bus/policy-requests.js';
import type { FlowFilter, FlowPage, FlowQuery, HitQuery, HitReport } from '#contracts/datapath.js';

/** Queries about the traffic in the datapath. They return a `Refusal` while no dataplane runs. */
export type Traffic = {
  hits(query: HitQuery): Promise<HitReport | Refusal>;
  flows(query: FlowQuery): Promise<FlowPage | Refusal>;
  /**
   * Removes the matching flows from the flow table. The next packet of a removed flow is then classified like
   * the first packet of a new flow.
   */
  cutFlows(filter: FlowFilter): Promise<{ readonly cut: number } | Refusal>;
};

export const FLOW_VERDICTS = ['allow', 'audit', 'redirect'] as const;
export const FLOW_STATES = [
  'tcp_syn_sent',
  'tcp_syn_received',
  'tcp_established',
  'tcp_half_closed',
  'tcp_closing',
  'tcp_reset',
  'udp_opened',
  'udp_replied',
  'icmp_opened',
  'icmp_replied',
  'other_opened',
  'other_replied',
] as const;
